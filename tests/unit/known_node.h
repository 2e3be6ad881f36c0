// The nodes of tests/data/nodes, by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/hardware/gpu_list.h"
#include "cpu_list.h"

namespace bootstrap {

struct KnownNode {
  CpuSet cpus = {};
  std::map<std::uint32_t, CpuSet> packages = {};
  std::map<std::uint32_t, CpuSet> numa_nodes = {};
  std::vector<Gpu> gpus = {};  // in PCI order
};

inline std::vector<std::string> names_of_known_nodes() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TEST_DATA_DIR "/nodes")) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// tests/data/nodes/README.md describes the lines.
inline Gpu read_known_gpu(std::istringstream& fields, const KnownNode& node) {
  Gpu gpu;
  std::string vendor, near;
  fields >> gpu.pci >> vendor >> near >> gpu.device >> gpu.uuid >> std::ws;
  std::getline(fields, gpu.name);
  if (gpu.uuid == "-") gpu.uuid.clear();
  gpu.vendor = vendor == "nvidia" ? GpuVendor::kNvidia : GpuVendor::kAmd;
  for (const auto& [number, cpus] : node.numa_nodes) {
    if (cpus.to_list() == near) gpu.numa = number, gpu.near = cpus;
  }
  for (const auto& [number, cpus] : node.packages) {
    if (!gpu.near.empty() && gpu.near.is_within(cpus)) gpu.package = cpus;
  }
  return gpu;
}

inline KnownNode known_node(const std::string& name) {
  std::ifstream file(TEST_DATA_DIR "/nodes/" + name + ".txt");
  EXPECT_TRUE(file) << name;
  KnownNode node;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string kind, list;
    std::uint32_t number = 0;
    fields >> kind;
    if (kind == "gpu") {
      node.gpus.push_back(read_known_gpu(fields, node));
    } else if (kind == "cpus") {
      fields >> list;
      node.cpus = cpus(list);
    } else {
      fields >> number >> list;
      (kind == "numa" ? node.numa_nodes : node.packages)[number] = cpus(list);
    }
  }
  return node;
}

}  // namespace bootstrap
