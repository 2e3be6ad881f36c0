// What srun knows of its step without slurmctld: its own options, what the program is, and which tasks run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/activation/activation_rules.h"
#include "core/program/program_files.h"
#include "core/util/environment.h"
#include "core/util/result.h"
#include "probe/deadline.h"
#include "spank_api.h"

namespace bootstrap {

// Runs `work` in a thread that may be left behind, so it owns all that it uses. Returns nullopt if it has not ended at
// the deadline. If no thread can start (a limit of processes or of memory), the caller does the work itself.
template <class Work, class Value = std::invoke_result_t<Work>>
std::optional<Value> call_in_time(Work work, Deadline deadline) {
  auto result = call_with_deadline<Value>("the work", work, deadline);
  if (result) return std::move(*result);
  return result.error().code == ErrorCode::kUnavailable ? std::optional<Value>(work()) : std::nullopt;
}

// A ReadHead that opens only executable regular files. srun runs as the user.
ProgramHead head_of_program(const std::string& path);

// /proc/self/cmdline, without its first word.
std::vector<std::string> own_command_line();

// In local_user_init. A program whose file cannot be read in time (a file server that does not answer) is unseen.
SrunFacts gather_srun_facts(spank_t spank, const Environment& environment, const UserChoice& choice,
                            const Settings& settings, Deadline deadline);

// By rank: whether its node has reported to srun that it started the task. nullopt: srun does not show that.
std::optional<std::vector<bool>> started_tasks();

}  // namespace bootstrap
