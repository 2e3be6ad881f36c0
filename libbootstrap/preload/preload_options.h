// What users can say about the preloaded library alone: SLURM_BOOTSTRAP_* variables of the rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/util/environment.h"

namespace bootstrap {

enum class Guard : std::uint8_t { kWarn, kFix, kOff };

struct PreloadOptions {
  std::chrono::seconds timeout{60};  // SLURM_BOOTSTRAP_TIMEOUT: after which a call that waits is explained
  Guard guard = Guard::kWarn;        // SLURM_BOOTSTRAP_GUARD=warn|fix|off: a rank on a GPU that is not its own
  bool timing = false;               // SLURM_BOOTSTRAP_TIMING=1: one line for each call
  std::optional<bool> asks_mpirun;   // SLURM_BOOTSTRAP_MPIRUN=ask: the program does not use MPI, so that its server may
                                     // be asked where the ranks are; off: it does, and nothing is said
  std::vector<std::string> complaints;  // one sentence for each value that was passed over
};

PreloadOptions read_preload_options(const Environment& environment);

}  // namespace bootstrap
