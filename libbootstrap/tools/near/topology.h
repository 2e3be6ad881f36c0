// A machine as hwloc sees it: cores, NUMA nodes, GPUs and cards, and the memory policy of this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/hardware/near_cores.h"
#include "core/util/result.h"

struct hwloc_topology;

namespace bootstrap {

class NodeTopology {
 public:
  // This machine, or that of a file which lstopo wrote.
  static Result<NodeTopology> load(const std::string& file);
  NodeTopology(NodeTopology&& other) noexcept : topology_(std::exchange(other.topology_, nullptr)) {}
  NodeTopology& operator=(NodeTopology&&) = delete;
  ~NodeTopology();

  CpuSet cpus() const;
  CoreMap core_map() const;
  std::vector<Gpu> gpus() const;  // in PCI order

  // The NUMA nodes of these CPUs. The memory of a GPU is no such node, although it may have a number like one.
  std::vector<std::uint32_t> memory_of(const CpuSet& cpus) const;
  // New pages of this process and its children come from there while there are any.
  Status prefer_memory_of(const CpuSet& cpus) const;

  // For the network, all that are equally near to these GPUs: of each GPU those that share the most with it, and no card
  // that is at another NUMA node. InfiniBand and RoCE if there are any, as UCX names them: "mlx5_0:1".
  std::vector<std::string> cards_near(const std::vector<Gpu>& gpus) const;

 private:
  explicit NodeTopology(hwloc_topology* topology) : topology_(topology) {}
  std::map<std::uint32_t, CpuSet> numa_nodes() const;

  hwloc_topology* topology_;
};

}  // namespace bootstrap
