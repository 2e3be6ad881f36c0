// What each framework reads beside RANK, WORLD_SIZE and MASTER_ADDR: one table, and when a set of it is in effect.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/step_plan.h"
#include "core/plan/visible_gpus.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

// Whether srun starts the tasks of this step for MPI, and how: "pmix", "pmi2", ...; empty: it does not.
std::string_view mpi_launch(const Environment& environment);

// Adds the variables of the frameworks, the network interface and the file to meet in, for all tasks of this node.
// Fails where the user named an interface that the node does not have.
Status add_frameworks(StepPlan& plan, const StepFacts& facts, const Settings& settings);

// What a task knows of itself when it starts.
struct TaskObservation {
  std::optional<GpuView> gpus;
  bool has_planned_gpus = false;    // these are the ones that the plan was made with
  std::uint32_t cores = 0;          // that it may run on; 0: not known
  std::uint32_t cores_of_node = 0;  // that the job has on the node; 0: not known
  std::uint32_t cores_asked = 0;    // --cpus-per-task; 0: not given
};

// Writes the variables that depend on that anew, into a plan that is this task's copy from then on.
void refine_frameworks(StepPlan& plan, const StepFacts& facts, const Settings& settings, std::size_t local_task,
                       const TaskObservation& sight);

// In the task itself: the variables as slurmstepd wrote them into this environment, which knew more.
void adopt_frameworks(StepPlan& plan, const Environment& environment);

// The threads that are a task's share of the cores; 0: not known.
std::uint32_t thread_count(const TaskObservation& sight, std::uint32_t local_size);

// Whether a set is in effect in this step, and why.
struct FrameworkState {
  bool is_set = false;
  std::string why;
};
FrameworkState framework_state(Framework framework, const StepFacts& facts, const Settings& settings);

}  // namespace bootstrap
