// The one gate between Slurm's C code and ours.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "spank_api.h"

namespace bootstrap {

inline constexpr int kAccepted = 0;
inline constexpr int kRefused = -1;  // up to Slurm 24.11 a positive value prints a message and lets the job run

// Runs one hook. An exception that left it would end srun or slurmstepd (std::terminate), even for an optional plugin;
// only allocation can throw in here. What a failed hook does is for the hook to say: in slurmstepd an answer other than
// 0 drains the node in some hooks.
template <class OnFailure, class Hook>
int guard(const char* name, OnFailure&& on_failure, Hook&& hook) noexcept {
  try {
    return hook();
  } catch (const std::exception& exception) {
    slurm_error("bootstrap: the plugin failed in %s: %s", name, exception.what());
  } catch (...) {
    slurm_error("bootstrap: the plugin failed in %s", name);
  }
  return on_failure();
}

inline int accept() noexcept { return kAccepted; }
inline int refuse() noexcept { return kRefused; }

}  // namespace bootstrap
