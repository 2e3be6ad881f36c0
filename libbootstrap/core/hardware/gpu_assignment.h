// Which task gets which GPU of its node: the nearest ones, and the same order in all tasks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/hardware/gpu_list.h"

namespace bootstrap {

inline constexpr std::uint32_t kNear = 0;            // all cores of the task are near: in its L3, or its NUMA node
inline constexpr std::uint32_t kSameNode = 10;       // all have another L3 in the GPU's NUMA node
inline constexpr std::uint32_t kSamePackage = 1000;  // all are elsewhere in its package
inline constexpr std::uint32_t kFar = 2000;          // all are in other packages, or the GPU's place is not known

// How far the cores of a task are from a GPU: the mean over its cores. A task whose cores are not known is near every
// GPU.
std::uint32_t distance(const CpuSet& task, const Gpu& gpu);

// By task, then by GPU.
using Distances = std::vector<std::vector<std::uint32_t>>;

// The order of the device list that all tasks of a node get. Position p holds GPU order[p], an index into the list as
// Slurm wrote it, and belongs to task p modulo the number of tasks:
//   tasks == GPUs   each task has the one at its own place
//   tasks <  GPUs   task t has t, t + tasks, t + 2 * tasks ...: equal groups; GPUs left over stand at the end
//   tasks >  GPUs   (shared) task t uses t modulo GPUs
// So set_device(LOCAL_RANK) is right if there is a GPU for each task.
//
// The sum of the distances between each task and its own GPUs is small: up to 64 GPUs, no exchange of two GPUs makes it
// smaller. It is the least sum if there are no more tasks than GPUs and each task is bound within one NUMA node. Among
// equal sums, a task's group has GPUs that are close in `neighbours`, which names all GPUs. If nothing is gained,
// Slurm's order stays. The same input gives the same order everywhere.
std::vector<std::uint32_t> assign_gpus(const Distances& distances, const std::vector<std::uint32_t>& neighbours);

// Indices of `gpus`: those of one package and NUMA node side by side, else in the order given.
std::vector<std::uint32_t> by_locality(const std::vector<Gpu>& gpus);

// Positions of the list that belong to `task`; the first one is its own, the others are its group.
std::vector<std::uint32_t> positions_of(std::uint32_t task, std::size_t tasks, std::size_t gpus);

}  // namespace bootstrap
