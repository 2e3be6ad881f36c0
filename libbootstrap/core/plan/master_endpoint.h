// Where the ranks meet: MASTER_ADDR and MASTER_PORT, the same on every node without a word between them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

// Two steps of the same job meet on one port only if their ids are a multiple of 37 or more apart, and neighbouring
// jobs with fewer than 37 steps not at all within (size of the range / 37) job ids. A requeued job gets another port
// than its previous run, whose processes may still be about.
//
// With a salt, which srun takes from the kernel's random numbers, nobody can know the port before the step starts, and
// so hold it against the step. Two steps that run at once on a node then meet on one port with the probability of one
// in the size of the range.
std::uint16_t computed_port(const StepId& id, const PortRange& range, std::uint64_t salt = 0);

// One more port of the same step, for what does not meet at MASTER_PORT: the n-th reserved one where Slurm reserved as
// many (n counts from 1; the first is MASTER_PORT), else one computed from the ids, far from those of neighbouring
// steps.
std::uint16_t further_port(const StepFacts& facts, const PortRange& range, std::uint32_t n);

// A name or template of --bootstrap-addr with the host filled in.
std::string fill_address(std::string_view address, std::string_view host);

// The name of a node in the network that the ranks meet in: `host`, or the site's template with it filled in.
std::string fabric_name(const Settings& settings, const std::string& host);

struct MasterEndpoint {
  std::string address;
  std::string address_from;  // where it comes from, for people
  std::uint16_t port = 0;
  std::string port_from;
};

Result<MasterEndpoint> choose_master_endpoint(const StepFacts& facts, const Settings& settings);

}  // namespace bootstrap
