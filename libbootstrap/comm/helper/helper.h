// The helper process: the rank asks over a socket, and an engine in the helper does the work.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "comm/exchange_engine.h"
#include "comm/helper/helper_process.h"

namespace bootstrap {

// For the first line of main() of a program that may start helpers: whether this process is one.
inline bool is_helper(int count, char** arguments) {
  return count == 2 && std::string_view(arguments[1]) == kHelperArgument;
}

// The whole work of a helper process.
[[noreturn]] void serve_as_helper() noexcept;

// Before exit(3), which Slurm's libpmi may call: the answer to the request that is open.
void answer_with(const Error& error);

}  // namespace bootstrap
