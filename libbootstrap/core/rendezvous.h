// Where the ranks meet: MASTER_ADDR and MASTER_PORT, the same on every node without a word between them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/facts.h"
#include "core/result.h"
#include "core/settings.h"

namespace bootstrap {

// The first port of SLURM_STEP_RESV_PORTS, such as "12000-12003,12007" or "12000". slurmctld reserves these per node,
// so two steps never share one.
Result<std::uint16_t> first_reserved_port(std::string_view text);

// Two steps of the same job meet on one port only if their ids are a multiple of 37 or more apart, and neighbouring
// jobs with fewer than 37 steps not at all within (size of the range / 37) job ids. A requeued job gets another port
// than its previous run, whose processes may still be about.
std::uint16_t computed_port(const StepId& id, const PortRange& range);

struct Rendezvous {
  std::string address;
  std::string address_from;  // where it comes from, for people
  std::uint16_t port = 0;
  std::string port_from;
};

Result<Rendezvous> make_rendezvous(const Facts& facts, const Settings& settings);

}  // namespace bootstrap
