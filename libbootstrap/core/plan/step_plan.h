// The decision of the whole project: facts and settings in, what each task of this node gets out. No I/O.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/master_endpoint.h"
#include "core/plan/node_gpus.h"
#include "core/settings/settings.h"
#include "core/step/planned_variables.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

struct StepPlan {
  std::vector<PlannedVariable> variables;
  FrameworkFlags frameworks{};        // by Framework: whose variables are set in this step
  std::vector<std::string> removals;  // leftovers and messengers that the tasks must not see
  MasterEndpoint master;
  std::optional<std::uint16_t> port_to_reserve;  // set on the node of rank 0 alone
  bool port_is_users = false;                    // MASTER_PORT was in the environment and is kept
  std::string workers;                           // of all ranks, for TF_CONFIG; empty: it is not set
  std::vector<std::uint16_t> worker_ports;       // of this node's tasks, to be reserved likewise (TensorFlow)
  std::optional<NodeGpus> gpus;                  // set where the tasks' GPUs are ours to deal out
  std::vector<std::string> warnings;             // one sentence each, for the user

  std::optional<std::size_t> find(std::string_view name) const;  // place in `variables`
  bool is_kept(std::string_view name) const;                     // the user's value stays
};

// The value that the program really sees: the user's where it is kept, else ours.
std::string effective_value(const StepPlan& plan, std::string_view name);

// For a step in which nothing is set: what must go so that it sees its environment as it would be without us.
std::vector<std::string> inherited_to_unset(const Environment& environment);

Result<StepPlan> make_step_plan(const StepFacts& facts, const Settings& settings);

struct TaskPlan {
  StepFacts facts;
  Settings settings;
  StepPlan plan;
  std::string verdict;                   // "SET UP: ..." or "NOT SET UP: ...", for people
  bool is_set = false;                   // the plugin set these variables in this very step
  std::vector<std::string> differences;  // variables that differ from the plan, for people
};

Result<TaskPlan> read_task_plan(const Environment& environment, const MpirunContext& around = {});

// Whether the list of GPUs is still the one that we set: BOOTSTRAP_GPU counts in that one, and means nothing in a list
// that the program has made itself.
bool has_our_gpu_list(const TaskPlan& task);

}  // namespace bootstrap
