// The cores near its GPUs for each task of a node, and how near the cores are that a task has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/hardware/gpu_list.h"

namespace bootstrap {

// The cores of a node, whose hardware threads stay together, in the order of the machine.
struct CoreMap {
  std::vector<CpuSet> cores;
  std::vector<CpuSet> packages;
};

struct NearRequest {
  std::vector<CpuSet> places;  // the CPUs near the GPUs of each task; empty: not known
  CpuSet allowed;              // what the step may use
  std::uint64_t cpus_per_task = 1;
  bool is_exclusive = false;
};

struct NearCores {
  CpuSet cpus;             // empty: there is none near, and the task keeps what it has
  bool is_filled = false;  // too few are near, so that others are among them, first of the same package
};

// Tasks near the same cores share all of them. With `is_exclusive` each core belongs to one task: places that overlap
// are divided into equal parts, in the order of the machine. The same input gives the same answer everywhere.
std::vector<NearCores> find_near_cores(const CoreMap& map, const NearRequest& request);

// For each of `tasks` tasks the GPUs that are its own: contiguous groups of neighbours, or one of them in turn.
std::vector<std::vector<std::uint32_t>> groups_of_gpus(const std::vector<Gpu>& gpus, std::size_t tasks);

// "0x3,0xc", SLURM_CPU_BIND_LIST: what all tasks of the node may use together. Empty: it is no list of masks.
CpuSet read_masks(std::string_view list);

// From near to far.
enum class Nearness : std::uint8_t { kL3, kNumaNode, kPackage, kAcross, kUnknown, kLast = kUnknown };
std::string_view nearness_name(Nearness nearness);

// Of the farthest of these cores. With several GPUs a core is near if it is near one of them. kUnknown: no place is
// known, or there are no cores.
Nearness nearness_of(const CpuSet& cores, const std::vector<Gpu>& gpus);

// How one rank is placed, for people.
struct NearRow {
  std::string cores = {};
  std::string memory = {};  // the NUMA nodes of these cores
  std::string gpu = {};     // PCI addresses of its own
  std::string cards = {};   // for the network, the nearest to the GPU
  std::string near = {};    // the cores that `near` binds it to; empty: the step has none near the GPU
  Nearness nearness = Nearness::kUnknown;
  bool operator==(const NearRow&) const = default;
};
inline auto fields_of(NearRow& row) {
  return std::tie(row.cores, row.memory, row.gpu, row.cards, row.near, row.nearness);
}

// The farthest first, then in the order given; `names` are those of the tasks. Last, what to do.
std::string near_table(const std::vector<NearRow>& rows, const std::vector<std::string>& names);

}  // namespace bootstrap
