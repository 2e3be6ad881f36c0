// What a helper process does: it reads its request, serves it, answers and ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "comm/process/helper_process.h"

namespace bootstrap {

// The first string of a request for where the ranks of mpirun are; the answer is kHostsKnown and their hosts, or
// anything else and the reason.
inline constexpr const char* kHostsRequest = "hosts";
inline constexpr const char* kHostsKnown = "known";

[[noreturn]] void serve_as_helper() noexcept;

// For the first line of main(), in a program of ours that may ask a helper: whether it is one.
inline bool is_helper(int count, char** arguments) {
  return count == 2 && std::string_view(arguments[1]) == kHelperArgument;
}

}  // namespace bootstrap
