// The GPUs that a step asked for, read from slurmctld's own record of the step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bootstrap {

// As slurmctld keeps them for each step; the job's request is copied into a step that has none. Slurm writes
// "gres:gpu:2" up to 23.02 and "gres/gpu:2" since 23.11.
struct TresRequest {
  std::string per_node;
  std::string per_step;
  std::string per_socket;
  std::string per_task;
  std::string bind;
};

struct GpuRequest {
  // GPUs of each node of the step. Nothing: they are not counted by node, and `reason` says why.
  std::optional<std::uint32_t> per_node;
  bool has_gpus = false;  // the step asked for GPUs, or parts of GPUs, in whatever way
  std::string reason;     // why the tasks of a node cannot have one GPU each; short, for people; empty: they may
  std::string_view hint;  // the request that would let them, for people; empty: none would
};

// `nodes`: of the step. A number of GPUs for the whole step tells those of a node where there is one node.
GpuRequest read_gpu_request(const TresRequest& request, std::uint32_t nodes);

}  // namespace bootstrap
