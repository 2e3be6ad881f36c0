// The plan of a step, its values, and the environment that a task of it finds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "core/plan/step_plan.h"
#include "step_environment.h"

namespace bootstrap {

inline StepPlan plan_of(const Environment& environment, const Settings& settings = {},
                        const MpirunContext& around = {}) {
  return *make_step_plan(*read_task_facts(environment, around), settings);
}

inline const PlannedVariable& variable(const StepPlan& plan, std::string_view name) {
  return plan.variables[*plan.find(name)];
}

// "-": the plan has no such variable.
inline std::string value(const StepPlan& plan, std::string_view name) {
  return plan.find(name) ? effective_value(plan, name) : "-";
}

inline void expect_values(const StepPlan& plan, std::initializer_list<std::pair<const char*, std::string>> expected) {
  for (const auto& [name, text] : expected) EXPECT_EQ(value(plan, name), text) << name;
}

inline Decision unasked(SetUp set_up) {
  return {.set_up = set_up, .asked = Asked::kUnasked, .unusable_master = {}, .reason = {}};
}

// As slurmstepd leaves it for local task `task`; a step inside the task inherits it.
inline Environment applied(const StepPlan& plan, Environment environment, std::size_t task = 0) {
  for (const auto& name : plan.removals) environment.unset(name);
  for (const auto& planned : plan.variables) {
    if (planned.action != Action::kKept) environment.set(planned.name, planned.value(task));
  }
  return environment;
}

}  // namespace bootstrap
