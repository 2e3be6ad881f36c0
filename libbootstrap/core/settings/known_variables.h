// The variables that this project reads, each with the longest value that it accepts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/util/environment.h"

namespace bootstrap {

// The user writes the environment of a step, and slurmstepd reads it before it drops root for good. So each value has a
// limit, and the limit bounds the time that a rule takes for the value.
struct KnownVariable {
  std::string_view name;
  std::uint32_t bytes;        // of the value
  std::uint32_t entries = 0;  // of a list with commas, or colons in PATH; 0: the value is no list
  bool is_setting = false;    // a longer value is a wrong one, which the setting's own sentence refuses

  bool accepts(std::string_view value) const;
};

// The row of a variable; that of SLURM_GPUS_PER_TASK also for SLURM_GPUS_PER_TASK_HET_GROUP_0. Null: the project does
// not read this variable.
const KnownVariable* find_known_variable(std::string_view name);

enum class UnknownVariables : std::uint8_t {
  kSkip,  // in srun and slurmstepd
  kKeep,  // in the library, which starts programs with the environment that it was started with
};

// The only way from a process's environment into an Environment. A value above its limit counts as not set, and its
// name is in Environment::refused(). The value of a setting is cut instead, and refused where settings are read.
Environment read_entries(const char* const* entries, UnknownVariables unknown);

// The same for a single value.
void read_entry(Environment& environment, std::string_view name, std::string_view value, UnknownVariables unknown);

// One sentence about the variables that were too long; empty: there are none.
std::string describe_refused(const Environment& environment);

}  // namespace bootstrap
