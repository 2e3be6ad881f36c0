// slurm-bootstrap simulate: how long a start would take on a cluster that is not at hand.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bootstrap {

struct SimulateOptions {
  std::vector<std::uint32_t> ranks{100'000};
  std::uint32_t ranks_per_node = 8;
  std::string roots = "auto";  // or a number
  std::string fence = "mixed";
  std::string gets = "roots";
  std::string constants;  // a file; "": the built-in ones
  bool sensitivity = false;
  bool json = false;
  bool print_constants = false;
  std::uint64_t seed = 0;
};

// Returns the exit status.
int simulate_command(const SimulateOptions& options);

}  // namespace bootstrap
