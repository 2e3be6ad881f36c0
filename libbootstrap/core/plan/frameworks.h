// What each framework reads beside RANK, WORLD_SIZE and MASTER_ADDR: one table, and when its rows are set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/plan/plan.h"
#include "core/settings/settings.h"
#include "core/util/result.h"

namespace bootstrap {

struct TaskContext;

enum class DependsOn : std::uint8_t {
  kStep,  // the same for all tasks of the step
  kTask,  // its place, its GPUs and its cores
};

struct FrameworkVariable {
  Framework framework;
  std::string_view name;
  std::string_view from;                     // for people
  std::string (*value)(const TaskContext&);  // empty: not set in this step
  DependsOn made_of;
};

std::span<const FrameworkVariable> framework_variables();

// Adds the frameworks' variables that all tasks have in common, the network interface, and BOOTSTRAP_INIT_FILE. Fails
// where the user named an interface that the node does not have.
Status add_frameworks(VariableList& variables, StepPlan& plan, const StepFacts& facts, const Settings& settings);

// Adds the frameworks' variables that each task has of its own.
void add_frameworks_of_task(VariableList& variables, const StepPlan& plan, const StepFacts& facts,
                            const Settings& settings, const TaskFacts& task);

// Why the variables of a framework are not set in this step; empty: they are.
std::string why_not_set(Framework framework, const StepFacts& facts, const Settings& settings);

}  // namespace bootstrap
