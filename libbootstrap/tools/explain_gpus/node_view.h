// One node of a step: its GPUs, which rank has which, on which cores, and what it can use; and the table of that.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/hardware/topology.h"
#include "core/plan/step_plan.h"
#include "core/step/rank_layout.h"
#include "core/util/environment.h"

namespace bootstrap {

struct RankView {
  Rank rank = 0;
  std::uint32_t local_rank = 0;
  CpuSet cpus;                        // that it may run on; empty: not known
  std::vector<std::uint32_t> gpus;    // its own, the first one first: indices into NodeView::topology.gpus
  std::vector<std::uint32_t> usable;  // all that it can use, its own among them
  bool knows_gpus = true;             // false: its GPUs are unknown, and no GPU is called free
};

struct NodeView {
  std::string host;
  std::string step;  // "12.0"
  Topology topology;
  std::vector<std::uint32_t> step_gpus;  // GPUs that Slurm gave to the step, indices into topology.gpus
  std::vector<RankView> ranks;           // in order of local rank
  std::vector<std::string> notes;        // sentences below the table
};

// Printable ASCII, whatever the names hold; ends with a newline. Long tables are cut short: "... and 509 more rows".
std::string node_table(const NodeView& view);

// The cores that Slurm bound each local task to, from SLURM_CPU_BIND_TYPE and SLURM_CPU_BIND_LIST;
// empty sets for tasks that are not bound.
std::vector<CpuSet> bound_cores(const Environment& environment, std::size_t tasks);

// What a task can open and use; all empty outside a task.
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
