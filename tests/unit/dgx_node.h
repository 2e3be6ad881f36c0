// A DGX H100 to draw, with and without ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/util/text.h"
#include "cpu_list.h"
#include "tools/explain_gpus/node_view.h"

namespace bootstrap {

inline std::vector<std::uint32_t> first(std::uint32_t count) {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t number = 0; number < count; ++number) numbers.push_back(number);
  return numbers;
}

// `count` cores from `start` on, with their second threads.
inline CpuSet cores(std::size_t start, std::size_t count, std::size_t threads_from) {
  CpuSet set;
  for (auto cpu = start; cpu < start + count; ++cpu) {
    set.add(cpu);
    set.add(cpu + threads_from);
  }
  return set;
}

inline NodeView dgx_h100() {
  NodeView view;
  view.host = "dgx001";
  view.step = "12.0";
  auto& topology = view.topology;
  topology.cpus = cpus("0-223");
  topology.packages = {{0, cpus("0-55,112-167")}, {1, cpus("56-111,168-223")}};
  topology.numa_nodes = {{0, 0, topology.packages[0].cpus}, {1, 1, topology.packages[1].cpus}};
  std::uint32_t index = 0;
  for (const auto bus : {"1b", "43", "52", "61", "9d", "c3", "d1", "df"}) {
    Gpu gpu;
    gpu.pci = cat({"0000:", bus, ":00.0"});
    gpu.device = cat({"/dev/nvidia", std::to_string(index)});
    gpu.name = "NVIDIA H100 80GB HBM3";
    gpu.numa = gpu.package = index / 4;
    gpu.near = topology.packages[index / 4].cpus;
    topology.gpus.push_back(gpu);
    view.step_gpus.push_back(index++);
  }
  return view;
}

inline NodeView dgx_h100_with_8_ranks() {
  auto view = dgx_h100();
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    view.ranks.push_back({rank, rank, cores(std::size_t{14} * rank, 14, 112), {rank}, first(8)});
  }
  return view;
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace bootstrap
