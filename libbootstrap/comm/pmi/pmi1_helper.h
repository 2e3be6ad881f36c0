// One exchange over PMI-1, made by a helper process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "comm/pmi/helper_process.h"

namespace bootstrap {

// The request has the value of the rank, then the ranks whose values it wants. The first string of the answer is one of
// these. After the first the values follow, empty where a rank has put none; after the others the reason.
inline constexpr std::string_view kPmi1Done = "done";
inline constexpr std::string_view kPmi1NotBegun = "not begun";    // the barrier
inline constexpr std::string_view kPmi1BarrierFailed = "failed";  // srun may count the rank at the barrier

// For the first line of main() of a program that may start helpers: whether this process is one.
inline bool is_helper(int count, char** arguments) {
  return count == 2 && std::string_view(arguments[1]) == kHelperArgument;
}

// The whole work of a helper process: it reads the request, makes the exchange and answers.
[[noreturn]] void serve_as_helper() noexcept;

}  // namespace bootstrap
