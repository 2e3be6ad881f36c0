// What each framework reads beside RANK, WORLD_SIZE and MASTER_ADDR: one table, and when its rows are set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/plan/node_gpus.h"
#include "core/plan/step_plan.h"
#include "core/plan/task_plan.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

// One task, as its program sees it.
struct TaskContext {
  const StepPlan& plan;
  const StepFacts& facts;
  const Settings& settings;
  Rank rank;
  Place place;  // of a task that passes for a node of its own, accordingly
  std::uint32_t node_count;
  bool is_alone;
  const GpuView* gpus;    // null: none that are dealt out
  std::uint32_t threads;  // 0: not known
};

TaskContext task_context(const StepPlan& plan, const StepFacts& facts, const Settings& settings, const TaskFacts& task);

// What a value depends on, and so when it is computed again.
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

// The TensorFlow servers of all ranks, in order: "host:port", each in quotes. Empty: they need more than `room` bytes.
std::string worker_list(const StepFacts& facts, const Settings& settings, std::size_t room);

// Where a rank's TensorFlow server listens, on its own node.
std::uint16_t worker_port(const StepFacts& facts, const Settings& settings, Rank rank);

// Whether srun starts the tasks of this step for MPI, and how: "pmix", "pmi2", ...; empty: it does not.
std::string_view mpi_launch(const Environment& environment);

// Adds what the frameworks read and all tasks have in common, the network interface and the file to meet in. Fails
// where the user named an interface that the node does not have.
Status add_frameworks(StepPlan& plan, const StepFacts& facts, const Settings& settings);

// Adds what the frameworks read and each task has of its own.
void add_frameworks_of_task(VariableList& variables, const StepPlan& plan, const StepFacts& facts,
                            const Settings& settings, const TaskFacts& task);

// Whether a set is in effect in this step, and why.
struct FrameworkState {
  bool is_set = false;
  std::string why;
};
FrameworkState framework_state(Framework framework, const StepFacts& facts, const Settings& settings);

}  // namespace bootstrap
