// A step's request for GPUs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bootstrap {

// As slurmctld keeps them for each step; the job's request is copied into a step that has none. Slurm writes
// "gres:gpu:2" up to 23.02 and "gres/gpu:2" since 23.11.
struct TresRequest {
  std::string per_node = {};
  std::string per_step = {};
  std::string per_socket = {};
  std::string per_task = {};
  std::string bind = {};
  // The GPUs of each node of the job, from slurmctld's detailed record of the job: "gpu:a100:4(IDX:0-3)". Empty:
  // srun did not ask for it.
  std::vector<std::string> job_nodes = {};
};

struct GpuRequest {
  // GPUs of each node of the step. Nothing: the request has no number for each node; `reason` explains.
  std::optional<std::uint32_t> per_node;
  bool has_gpus = false;  // the step asked for GPUs, or parts of GPUs, in any way
  std::string reason;     // why the tasks of a node cannot have one GPU each; short, for people; empty: they may
  std::string_view hint;  // the request that would let them, for people; empty: none would
};

// True if only the record of the job has the GPUs of each node: a number for the whole step does not give them.
bool needs_job_nodes(const TresRequest& request, std::uint32_t nodes);

// `nodes`: of the step. A number of GPUs for the whole step gives a number for each node only on one node, or if the
// step has all nodes and GPUs of its job and each node has the same number.
GpuRequest read_gpu_request(const TresRequest& request, std::uint32_t nodes);

}  // namespace bootstrap
