// The GPUs of the tasks on this node: their order, what a task can open, and its cores near them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/node_gpus.h"
#include "core/settings/settings.h"
#include "core/util/result.h"
#include "spank_api.h"

namespace bootstrap {

class GpuOrder {
 public:
  // In user_init: shares memory with the tasks. Does nothing if all GPUs are in one place, where any order will do.
  void prepare(const NodeGpus& node);

  // In task_post_fork: task `local_rank` runs as `process`. With the last one the order is decided and shared.
  void note_task(const NodeGpus& node, std::uint32_t local_rank, pid_t process);

  // In a task: the plan's GPUs in that order; nullopt: no order was decided, or it is the plan's own.
  std::optional<NodeGpus> reordered(const NodeGpus& node) const;

 private:
  struct Page;

  // Lives as long as the process. A plain pointer, since the hooks may run in several processes that share all memory
  // (contain_spank of Slurm 24.05).
  Page* page_ = nullptr;
  std::vector<CpuSet> cores_;  // by local rank
  std::vector<bool> is_noted_;
};

// What this task sees of its GPUs. If Slurm hides none, restores the lists that Slurm has changed.
Result<GpuView> look_at_gpus(spank_t spank, const NodeGpus& gpus, const Settings& settings, const Place& place);

// For --bootstrap-cpu=near: of the cores that the task has, it keeps those near its GPUs, if there are any.
Status bind_near(const NodeGpus& node, const GpuView& view);

}  // namespace bootstrap
