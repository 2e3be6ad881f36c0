// The nodes of tests/data/nodes, by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/hardware/gpu_list.h"

namespace bootstrap {

// CPUs as the kernel lists them: "0-3,8".
inline CpuSet cpus(std::string_view list) { return *CpuSet::parse_list(list); }

struct KnownCard {
  std::string pci, name;
  CpuSet near;
};

struct KnownNode {
  CpuSet cpus = {};
  std::size_t threads = 0;  // CPU c and c + threads are one core; 0: a core has one thread
  std::map<std::uint32_t, CpuSet> packages = {};
  std::map<std::uint32_t, CpuSet> numa_nodes = {};
  std::vector<Gpu> gpus = {};  // in PCI order
  std::vector<CpuSet> l3 = {};
  std::vector<KnownCard> cards = {};
  std::vector<std::string> switches = {};  // PCI domain, first and last bus: "0000:18-1b"
  std::string board = {};

  CpuSet core_of(std::size_t cpu) const {
    CpuSet core;
    for (auto one = threads == 0 ? cpu : cpu % threads; one < cpus.count(); one += threads) {
      core.add(one);
      if (threads == 0) break;
    }
    return core;
  }
  std::vector<CpuSet> cores() const {
    std::vector<CpuSet> all;
    for (const auto cpu : cpus.members()) {
      if (core_of(cpu).first() == cpu) all.push_back(core_of(cpu));
    }
    return all;
  }
  std::vector<CpuSet> package_list() const {
    std::vector<CpuSet> all;
    for (const auto& [number, package] : packages) all.push_back(package);
    return all;
  }
};

// tests/data/nodes/README.md describes the lines.
inline Gpu read_known_gpu(std::istringstream& fields, const KnownNode& node) {
  Gpu gpu;
  std::string vendor, near;
  fields >> gpu.pci >> vendor >> near >> gpu.device >> gpu.uuid >> std::ws;
  std::getline(fields, gpu.name);
  if (gpu.uuid == "-") gpu.uuid.clear();
  gpu.vendor = vendor == "nvidia" ? GpuVendor::kNvidia : vendor == "amd" ? GpuVendor::kAmd : GpuVendor::kIntel;
  for (const auto& [number, cpus] : node.numa_nodes) {
    if (cpus.to_list() == near) gpu.numa = number, gpu.near = cpus;
  }
  for (const auto& [number, cpus] : node.packages) {
    if (!gpu.near.empty() && gpu.near.is_within(cpus)) gpu.package = cpus;
  }
  return gpu;
}

// Reads lines that only some nodes have. False if the line is of another kind.
inline bool read_known_detail(const std::string& kind, std::istringstream& fields, KnownNode& node) {
  std::string name, list;
  if (kind == "threads") {
    fields >> node.threads;
  } else if (kind == "board") {
    std::getline(fields >> std::ws, node.board);
  } else if (kind == "l3") {
    fields >> list;
    node.l3.push_back(cpus(list));
  } else if (kind == "switch") {
    fields >> node.switches.emplace_back();
  } else if (kind == "card") {
    auto& card = node.cards.emplace_back();
    fields >> card.pci >> card.name >> list;
    card.near = cpus(list);
  } else if (kind == "l3-of") {
    fields >> name >> list;
    for (auto& gpu : node.gpus) gpu.l3 = gpu.pci == name ? cpus(list) : gpu.l3;
  } else {
    return false;
  }
  return true;
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
    if (read_known_detail(kind, fields, node)) continue;
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

// All of them, by name.
inline std::map<std::string, KnownNode> known_nodes() {
  std::map<std::string, KnownNode> nodes;
  for (const auto& entry : std::filesystem::directory_iterator(TEST_DATA_DIR "/nodes")) {
    if (const auto& path = entry.path(); path.extension() == ".txt") nodes[path.stem()] = known_node(path.stem());
  }
  return nodes;
}

}  // namespace bootstrap
