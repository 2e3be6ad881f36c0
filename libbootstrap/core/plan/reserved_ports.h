// Which ports slurmstepd or a preloaded process holds for a step, and what people read where it cannot.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/settings.h"
#include "core/step/rank_layout.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

inline constexpr std::string_view kPortsVariable = "BOOTSTRAP_PORTS";

struct PortToReserve {
  std::uint16_t port = 0;
  std::string name;  // "MASTER_PORT 25000 on node001"
};

struct PortPlan {
  std::optional<PortToReserve> master;  // on the node of rank 0 alone
  bool is_users = false;                // MASTER_PORT was in the environment and is kept
  // Only tried: a reservation could keep the user's own program from the port, and the step did not ask for one.
  bool is_only_tried = false;
  std::vector<PortToReserve> workers;  // of this node's TensorFlow servers

  // BOOTSTRAP_PORTS: by local task the ports that it may have; it gets the first ones that are free, so many of them.
  std::vector<std::vector<std::uint16_t>> of_tasks;
  std::uint32_t count_of_task = 0;
  bool reserves_ports_of_tasks = true;
};

// The result.
struct PortFacts {
  bool reserves_master = false;
  std::string refused_master;                        // the system's reason, behind the name of the port; empty: none
  std::vector<std::string> refused_workers;          // likewise
  std::vector<std::vector<std::uint16_t>> of_tasks;  // empty: too few ports are free for one of them
  std::optional<std::size_t> task_without_ports;     // that local task
};

struct RefusedPort {
  std::string sentence;   // the port, its host, the reason and a remedy
  bool is_users = false;  // the user set this MASTER_PORT: two steps of a job may share it, and one of them listens
};

std::vector<RefusedPort> describe_refused_ports(const PortPlan& plan, const PortFacts& found, const StepFacts& facts,
                                                const Settings& settings);

// Plans BOOTSTRAP_PORTS. The tasks' own servers listen there: those of inference engines, for one.
Status plan_ports_of_tasks(PortPlan& plan, const StepFacts& facts, const Settings& settings);

// The i-th port, from 0, that a rank may have in BOOTSTRAP_PORTS: no other port of the step on its node. 0: the range
// has no more.
std::uint16_t task_port(const StepFacts& facts, const Settings& settings, Rank rank, std::uint32_t i);

// "MASTER_PORT 25000 on node001".
PortToReserve port_to_reserve(std::string_view what, std::uint16_t port, const std::string& host);

}  // namespace bootstrap
