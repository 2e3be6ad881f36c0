// What a helper process does: it reads its request, serves it, answers and ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "comm/process/own_program.h"

namespace bootstrap {

[[noreturn]] void serve_as_helper() noexcept;

// For the first line of main(), in a program of ours that may ask a helper: whether it is one.
inline bool is_helper(int count, char** arguments) {
  return count == 2 && std::string_view(arguments[1]) == kHelperArgument;
}

}  // namespace bootstrap
