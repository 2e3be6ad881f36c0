// For each task of a node, the cores near its GPUs, and how near the cores are that it has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/hardware/gpu_list.h"

namespace bootstrap {

struct NearRequest {
  std::vector<CpuSet> cores;   // of the machine in its order: the hardware threads of each, which stay together
  std::vector<CpuSet> places;  // the CPUs near each GPU, or near all GPUs of a task; empty: not known
  CpuSet allowed;              // what the step may use
  std::size_t needed = 1;      // CPUs of a task
  std::size_t each = 1;        // places of a task
  bool is_exclusive = false;
};

struct NearCores {
  CpuSet cpus;             // empty: the step has none near
  bool is_filled = false;  // too few are near, so `cpus` has others, too, first those of the same package
};

// Places share all cores that are near to them. With `is_exclusive` each core belongs to one place: places that overlap
// are divided into equal parts, in the order of the machine. The same request gives the same answer everywhere.
std::vector<NearCores> find_near_cores(const NearRequest& request, const std::vector<CpuSet>& packages);

// The CPUs with the GPU's L3 cache, else those of its NUMA node, of all GPUs together.
CpuSet place_of(const std::vector<Gpu>& gpus);

// For each of `tasks` tasks the GPUs that are its own: groups of neighbours, or with more tasks one GPU in turn.
std::vector<std::vector<Gpu>> groups_of_gpus(const std::vector<Gpu>& gpus, std::size_t tasks);

// From near to far.
enum class Nearness : std::uint8_t { kL3, kNumaNode, kPackage, kAcross, kUnknown, kLast = kUnknown };

// How near the farthest of these cores is. With several GPUs a core is near if it is near one of them. kUnknown: no
// place is known, or there are no cores.
Nearness nearness_of(const CpuSet& cores, const std::vector<Gpu>& gpus);

// How one rank is placed, for people.
struct NearRow {
  std::string cores = {};
  std::string memory = {};  // the NUMA nodes of these cores
  std::string gpu = {};     // PCI addresses of its own
  std::string cards = {};   // network cards, the nearest to the GPU
  std::string near = {};    // the cores that `near` binds it to; empty: the step has none near the GPU
  Nearness nearness = Nearness::kUnknown;

  bool operator==(const NearRow&) const = default;
};
inline auto fields_of(NearRow& row) {
  return std::tie(row.cores, row.memory, row.gpu, row.cards, row.near, row.nearness);
}

// A table, the farthest ranks first, then in the order given. `names`: of the ranks. Its last lines say what to do.
std::string near_table(const std::vector<NearRow>& rows, const std::vector<std::string>& names);

}  // namespace bootstrap
