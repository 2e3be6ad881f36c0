// slurm-bootstrap bench: how fast the ranks of this step add numbers up, by message size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace bootstrap {

struct BenchOptions {
  std::string min_bytes = "8";
  std::string max_bytes = "128M";
  std::uint64_t factor = 2;
  std::uint32_t iterations = 20;
  std::uint32_t warmup = 5;
  std::string communicator = "world";  // or node, cross
  bool in_place = false;
  bool check = true;
  bool json = false;
  std::chrono::seconds timeout{60};  // of each step: all ranks to come, the communicator, each size
};

inline constexpr int kBenchSkipped = 77;  // as automake's tests say it: nothing was run, and nothing has failed

// The exit status, the same on all ranks: 0; 1 when something failed or a sum was wrong; 2 outside a step;
// kBenchSkipped where CUDA has no GPU for any rank.
int bench_command(const BenchOptions& options);

}  // namespace bootstrap
