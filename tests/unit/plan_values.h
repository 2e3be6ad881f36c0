// The plan of a step, its values, and the environment that a task of it finds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "core/plan/plan.h"
#include "core/util/text.h"
#include "step_environment.h"

namespace bootstrap {

// Both halves of a plan, for one task.
struct WholePlan {
  StepPlan step;
  Variables variables;
  std::vector<std::string> warnings;

  const PlannedVariable* find(std::string_view name) const { return find_variable(variables, name); }
  std::optional<std::uint16_t> port() const {
    return step.ports.master ? std::optional(step.ports.master->port) : std::nullopt;
  }
};

inline WholePlan plan_of_task(const StepPlan& step, const StepFacts& facts, const Settings& settings,
                              const TaskFacts& task) {
  auto planned = plan_task(step, facts, settings, task);
  return {step, std::move(planned.variables), std::move(planned.warnings)};
}

// The plan of a task with this many cores on a node with that many.
inline WholePlan plan_with_cores(const StepFacts& facts, const Settings& settings, std::uint32_t cores,
                                 std::uint32_t of_node, std::uint32_t local_rank = 0) {
  const auto step = *plan_step(facts, settings);
  auto task = assumed_task(step, facts, 0);
  task.view = view_of(*step.gpus, local_rank);
  task.cores = cores;
  task.cores_of_node = of_node;
  return plan_of_task(step, facts, settings, task);
}

inline Result<WholePlan> make_plan(const StepFacts& facts, const Settings& settings, std::size_t local_task = 0) {
  const auto step = plan_step(facts, settings);
  if (!step) return fail(step.error());
  return plan_of_task(*step, facts, settings, assumed_task(*step, facts, local_task));
}

inline WholePlan plan_of(const Environment& environment, const Settings& settings = {},
                         const MpirunContext& around = {}) {
  return *make_plan(*read_task_facts(environment, around), settings);
}

// 0,1,2 and so on.
inline std::string numbers(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return join(all, ",");
}

// All tasks of a step on one node with these GPUs, which `variable` lists.
inline StepFacts one_node(int tasks, const std::string& list, const std::string& ids,
                          std::string_view variable = "CUDA_VISIBLE_DEVICES") {
  auto environment = step_of("node001", std::to_string(tasks), tasks, "node001");
  environment.unset("CUDA_VISIBLE_DEVICES");
  environment = with(environment, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_GPUS", ids}, {variable, list}});
  LocalTasks local;
  local.host = "node001";
  for (int rank = 0; rank < tasks; ++rank) local.ranks.push_back(static_cast<Rank>(rank));
  return *read_facts(environment, {12, 0, 0}, local);
}

inline StepFacts one_node(int tasks, int gpus) { return one_node(tasks, numbers(gpus), numbers(gpus)); }

inline const PlannedVariable& variable(const WholePlan& plan, std::string_view name) { return *plan.find(name); }

// "-": the plan has no such variable.
inline std::string value(const Variables& variables, std::string_view name) {
  return find_variable(variables, name) == nullptr ? "-" : effective_value(variables, name);
}
inline std::string value(const WholePlan& plan, std::string_view name) { return value(plan.variables, name); }

inline void expect_values(const WholePlan& plan, std::initializer_list<std::pair<const char*, std::string>> expected) {
  for (const auto& [name, text] : expected) EXPECT_EQ(value(plan, name), text) << name;
}

inline Decision unasked(SetUp set_up) {
  return {.set_up = set_up, .asked = Asked::kUnasked, .unusable_master = {}, .reason = {}};
}

// The environment that slurmstepd gives the task, and that a step inside the task inherits.
inline Environment applied(const StepPlan& step, const Variables& variables, Environment environment) {
  for (const auto& name : step.removals) environment.unset(name);
  for (const auto& planned : variables) {
    if (planned.action != Action::kKept) environment.set(planned.name, planned.value);
  }
  return environment;
}
inline Environment applied(const WholePlan& plan, Environment environment) {
  return applied(plan.step, plan.variables, std::move(environment));
}

}  // namespace bootstrap
