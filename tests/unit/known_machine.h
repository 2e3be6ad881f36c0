// The machines of tests/data/topologies, by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/hardware/topology.h"

namespace bootstrap {

inline std::vector<std::string> names_of_known_machines() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TEST_DATA_DIR "/topologies")) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string text_of_known_machine(const std::string& name) {
  std::ifstream file(TEST_DATA_DIR "/topologies/" + name + ".txt");
  return {std::istreambuf_iterator<char>(file), {}};
}

// Not with read_topology_file: a checkout may be writable for a group.
inline Topology known_machine(const std::string& name) {
  auto topology = parse_topology_text(text_of_known_machine(name));
  EXPECT_TRUE(topology) << name << ": " << topology.error().message;
  return topology ? *topology : Topology();
}

}  // namespace bootstrap
