// The table of what frameworks read: each variable, who reads it, and how its value follows from the plan.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/plan/step_plan.h"
#include "core/plan/visible_gpus.h"
#include "core/settings/framework_choice.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"

namespace bootstrap {

// One task as its program is told about it.
struct TaskContext {
  const StepPlan& plan;
  const StepFacts& facts;
  const Settings& settings;
  Rank rank;
  Place place;  // of a task that is told that it has its node alone, accordingly
  std::uint32_t node_count;
  bool is_alone;
  const GpuView* gpus;    // null: none that are dealt out
  std::uint32_t threads;  // 0: not known
};

TaskContext told_task(const StepPlan& plan, const StepFacts& facts, const Settings& settings, Rank rank,
                      const GpuView* gpus, std::uint32_t threads);

// What of a task its value is made of, and so when it has to be made anew.
enum class DependsOn : std::uint8_t {
  kStep,   // the same for all tasks of the step
  kTask,   // its place and its GPUs
  kCores,  // its share of the cores
};

struct FrameworkVariable {
  Framework framework;
  std::string_view name;
  std::string_view from;                     // for people
  std::string (*value)(const TaskContext&);  // empty: not set in this step
  DependsOn made_of;
};

std::span<const FrameworkVariable> framework_variables();

// Below what Slurm hands on (see Environment::kMaxValue). A value that is longer need not be whole.
inline constexpr std::size_t kMaxFrameworkValue = 60000;

// Where a rank's TensorFlow server listens, on its own node.
std::uint16_t worker_port(const StepFacts& facts, const Settings& settings, Rank rank);

}  // namespace bootstrap
