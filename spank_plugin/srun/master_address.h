// In srun: finds out by which name or address the nodes reach the host of rank 0, and what the user's MASTER_ADDR is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/environment.h"
#include "probe/deadline.h"

namespace bootstrap {

struct FoundAddresses {
  MeetingAddresses meeting;
  std::string host_without_address;  // of rank 0, if no name and no address leads there
  std::string unusable_master;       // the user's MASTER_ADDR, if it has no usable address
  std::string unusable_option;       // likewise of --bootstrap-addr
};

// Nodes ask no name server. If srun's does not answer in time, the nodes choose no interface, and all addresses stay.
// One RPC if the host's name does not resolve, or the user wants Slurm's address of the host.
FoundAddresses find_addresses(const Environment& environment, const Settings& settings, Asked asked,
                              const std::vector<ComponentText>& components, Deadline deadline);

std::string host_of_first_rank(const std::vector<ComponentText>& components);

}  // namespace bootstrap
