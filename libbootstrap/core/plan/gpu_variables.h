// The GPU half of a plan: whether and how the tasks of this node get GPUs, and the variables that say so.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "core/plan/step_plan.h"
#include "core/plan/visible_gpus.h"
#include "core/settings/internal_variables.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

inline constexpr std::string_view kGpuVariable = "BOOTSTRAP_GPU";
inline constexpr std::string_view kGroupVariable = "BOOTSTRAP_GPUS";
inline constexpr std::string_view kUuidsVariable = "BOOTSTRAP_GPU_UUIDS";

// What tells a task that it is a node of its own: a name, the part of alone_place(), and where it comes from.
struct AloneVariable {
  std::string_view name;
  std::uint32_t Place::*part;
  std::string_view from;
};
inline constexpr std::array<AloneVariable, 5> kAloneVariables{{
    {"LOCAL_RANK", &Place::local_rank, "each task's own GPU is its device 0"},
    {"LOCAL_WORLD_SIZE", &Place::local_size, "as if each task had a node of its own"},
    {"NODE_RANK", &Place::rank, "likewise"},
    {"GROUP_RANK", &Place::rank, "likewise"},
    {"GROUP_WORLD_SIZE", &Place::cross_size, "likewise"},
}};

// "4 tasks on node001 share 2 GPUs, and NCCL does not work with two ranks on one".
std::string describe_sharing(const std::string& host, std::size_t tasks, std::string_view share, std::size_t gpus);

// What srun is to be told so that it does not hide GPUs from tasks, and the option that does the same by hand.
struct GpuBindDefault {
  std::string_view variable;
  std::string_view value;
  std::string_view option;
  bool is_flag = false;  // one of several words in the variable
};
// From 23.11.4 on Slurm can bind without hiding; before, it must not bind.
GpuBindDefault gpu_bind_default(std::uint32_t major, std::uint32_t minor, std::uint32_t micro);

// Whether it is worth to find out where the GPUs are.
bool needs_topology(const StepFacts& facts, const Settings& settings);

// More tasks on this node than GPUs, and nobody said that it is meant.
bool is_oversubscribed(const StepFacts& facts, const Settings& settings);

// Nothing when the tasks' GPUs are none of our business. Fails where a step that was asked for cannot have what it
// says.
Result<std::optional<NodeGpus>> make_node_gpus(const StepFacts& facts, const Settings& settings);

// The variables of a GPU plan for the tasks of this node, if nothing is hidden from them.
std::vector<PlannedVariable> gpu_variables(const NodeGpus& plan, const StepFacts& facts);

// Writes them anew into a plan whose GPUs were put into another order since it was made.
void refresh_gpu_variables(StepPlan& plan, const StepFacts& facts);

// Writes what one task sees into a plan that was made for all tasks of the node, which is that task's copy from then
// on.
void set_gpu_view(StepPlan& plan, std::size_t local_task, Rank rank, const GpuView& view);

// Another plugin of Slurm has changed the list of one task, which keeps it: nobody knows its own GPU.
void forget_own_gpu(StepPlan& plan, std::size_t local_task);

// In the task itself: its view as slurmstepd wrote it into this environment, which knew the cores of all tasks.
void adopt_gpu_view(StepPlan& plan, const Place& place, const Environment& environment);

}  // namespace bootstrap
