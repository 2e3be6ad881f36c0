// The view of this task's node: what the plan, the machine and Slurm's variables say about who sits where.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/plan/step_plan.h"
#include "core/util/environment.h"
#include "tools/explain_gpus/node_table.h"

namespace bootstrap {

// The cores that Slurm bound each local task to, as SLURM_CPU_BIND_TYPE and SLURM_CPU_BIND_LIST tell in every task;
// empty sets where they do not, as for tasks that are not bound.
std::vector<CpuSet> bound_cores(const Environment& environment, std::size_t tasks);

// What a task knows of itself beyond its environment; all empty when it is not a task that asks.
struct OwnAccess {
  struct Device {
    std::string path;
    bool is_open = false;
  };

  CpuSet cores;
  std::vector<Device> devices;  // device nodes of GPUs that are there, in order of their numbers
};

NodeView node_view_of(const TaskPlan& task, const Topology& topology, const OwnAccess& access);

}  // namespace bootstrap
