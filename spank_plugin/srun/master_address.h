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
  std::string host_without_address;  // of rank 0: the ranks find it by no name and no address
  std::string unusable_master;       // MASTER_ADDR of the user
  std::string unusable_option;       // likewise of --bootstrap-addr
};

// Nodes ask no name server. Where that of srun does not answer in time, the nodes choose no interface, and all
// addresses stay. One RPC where the name of the host does not resolve, or the user wants Slurm's address of it.
FoundAddresses find_addresses(const Environment& environment, const Settings& settings, Asked asked,
                              const std::vector<ComponentText>& components, Deadline deadline);

std::string host_of_first_rank(const std::vector<ComponentText>& components);

}  // namespace bootstrap
