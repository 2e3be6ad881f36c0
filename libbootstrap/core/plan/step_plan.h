// First half of the plan: facts of a step and settings in, what all its tasks on this node get out. No I/O. RANK and
// what else is each task's own is made by the second half, core/plan/task_plan.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/master_endpoint.h"
#include "core/plan/node_gpus.h"
#include "core/plan/reserved_ports.h"
#include "core/settings/settings.h"
#include "core/step/planned_variables.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

using Variables = std::vector<PlannedVariable>;

const PlannedVariable* find_variable(const Variables& variables, std::string_view name);  // null: it is not there
bool is_kept(const Variables& variables, std::string_view name);                          // the user's value stays

// The value that the program really sees: the user's where it is kept, else ours; empty: there is none.
std::string effective_value(const Variables& variables, std::string_view name);

// Never changed once it is made.
struct StepPlan {
  Variables variables;                // the same for all tasks
  FrameworkFlags frameworks{};        // by Framework: whose variables are set in this step
  std::vector<std::string> removals;  // leftovers and messengers that the tasks must not see
  MasterEndpoint master;
  PortPlan ports;
  std::string workers;                     // of all ranks, for TF_CONFIG; empty: it is not set
  std::optional<NodeGpus> gpus;            // set where the tasks' GPUs are ours to deal out
  std::vector<std::string> warnings;       // one sentence each, for the user: true of all nodes
  std::vector<std::string> node_warnings;  // likewise, of this node: other nodes may have none
};

// For a step in which nothing is set: what must go so that it sees its environment as it would be without us.
std::vector<std::string> inherited_to_unset(const Environment& environment);

Result<StepPlan> plan_step(const StepFacts& facts, const Settings& settings);

}  // namespace bootstrap
