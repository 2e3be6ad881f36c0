// The helper process: the rank asks over a socket, and an engine in the helper does the work.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "comm/exchange_engine.h"
#include "comm/helper/helper_process.h"

namespace bootstrap {

// True if this process is a helper. A program that may start helpers checks it first in main().
inline bool is_helper(int count, char** arguments) {
  return count == 2 && std::string_view(arguments[1]) == kHelperArgument;
}

// Does the whole work of a helper process.
[[noreturn]] void serve_as_helper() noexcept;

// Answers the open request with an error, also before an exit(3) that Slurm's libpmi calls.
void answer_with(const Error& error);

}  // namespace bootstrap
