// The order of the GPUs of a node. It depends on the cores of all tasks, which slurmstepd knows when it has forked
// them: it decides then, and the tasks read the decision from a page of memory that they share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/visible_gpus.h"

namespace bootstrap {

class GpuOrder {
 public:
  // In user_init. Nothing is to be decided, and no memory shared, where all GPUs are in one place.
  void prepare(const NodeGpus& plan, const Topology& topology);

  // In task_post_fork: task `local_rank` runs as `process`. With the last one the order is decided and shared.
  void note_task(const NodeGpus& plan, std::uint32_t local_rank, pid_t process);

  // In a task: puts the order into its copy of the plan. False: there is none, or it is the one that user_init gave it.
  bool apply_to(NodeGpus& plan) const;

 private:
  struct Page;

  // Lives as long as the process. A plain pointer, since the hooks may run in several processes that share all memory
  // (contain_spank of Slurm 24.05).
  Page* page_ = nullptr;
  Topology topology_;
  std::vector<CpuSet> cores_;  // by local rank
  std::vector<bool> is_noted_;
};

}  // namespace bootstrap
