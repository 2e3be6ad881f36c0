// How every message begins: who speaks, about which step or rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/step/step_id.h"
#include "core/util/text.h"

namespace bootstrap {

// A warning is what the step goes on after; where it does not, Slurm writes "error: " before ours.
inline constexpr std::string_view kMessagePrefix = "bootstrap: ";
inline constexpr std::string_view kWarningPrefix = "bootstrap: warning: ";

// "StepId=12.0", as Slurm itself names a step in its messages; what mpirun started is no step of that name.
inline std::string step_name(std::string_view id) {
  return id.starts_with(kMpirunPrefix) ? std::string(id) : cat({"StepId=", id});
}
inline std::string step_name(const StepId& id) { return step_name(to_string(id)); }

// "StepId=12.0: ", or "StepId=12.0 rank 3: ": comes next in every message about a step, or one of its ranks.
inline std::string about_step(std::string_view id) { return cat({step_name(id), ": "}); }
inline std::string about_step(const StepId& id) { return about_step(to_string(id)); }
inline std::string about_rank(const StepId& id, std::uint32_t rank) {
  return cat({step_name(id), " rank ", std::to_string(rank), ": "});
}

inline std::string step_prefix(const StepId& id) { return cat({kMessagePrefix, about_step(id)}); }

}  // namespace bootstrap
