// A picture of one node: packages, NUMA nodes, GPUs, which rank sits where and which GPUs it can use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/hardware/topology.h"
#include "core/step/rank_layout.h"

namespace bootstrap {

struct PictureTask {
  Rank rank = 0;
  std::uint32_t local_rank = 0;
  CpuSet cpus;                      // that it may run on; empty: not known
  std::vector<std::uint32_t> gpus;  // its own, the first one first: indices into NodePicture::topology.gpus
  std::vector<std::uint32_t> sees;  // all that it can use, its own among them
  bool knows_gpus = true;           // false: nothing is said about its GPUs, and no GPU is called free
};

struct NodePicture {
  std::string host;
  std::string step;  // "12.0"; empty for a picture of the machine alone
  Topology topology;
  std::vector<std::uint32_t> step_gpus;  // GPUs that Slurm gave to the step, indices into topology.gpus
  std::vector<PictureTask> tasks;        // in order of local rank
  std::vector<std::string> notes;        // sentences below the picture
};

// Printable ASCII in lines of at most 80 characters, whatever the names hold; ends with a newline. Large nodes are cut
// short: "... and 24 more GPUs: 8-31". Indices that are out of range are left out.
std::string picture_text(const NodePicture& picture);

}  // namespace bootstrap
