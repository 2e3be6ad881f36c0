// Sets the variables of a rank in its own process before `main`, on a cluster without the plugin.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/step/step_id.h"

namespace bootstrap {

// For the first process of a rank, with its command line. Changes `environ` as the plugin would; rank 0 also holds
// MASTER_PORT until the process ends. After an error it prints one sentence, and the program starts without the
// variables. False: the process is a launcher, and nothing is set.
bool set_up_rank(Launcher launcher, int count, const char* const* words) noexcept;

// For a process outside the step that its variables come from: a batch script, salloc or a single task that a rank
// started. Removes the variables that were set for that rank and that are unchanged since.
void remove_outer_rank() noexcept;

// Writes the line and a newline to standard error at once. Ignores a closed standard error and a broken pipe, without a
// SIGPIPE to the program, and keeps errno.
void print_line(std::string_view line) noexcept;

}  // namespace bootstrap
