// The helper process: an engine that serves the rank over a socket.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

// Requests as strings. The first of all has the version, since the library may be upgraded while the program runs. An
// answer begins with an empty string, or is the number and the message of an error.
namespace helper_request {

inline constexpr std::string_view kRun = "run";        // the tagged value, the deadline, is_for_step, the ranks
inline constexpr std::string_view kReport = "report";  // the tagged report or nothing, the ranks
inline constexpr std::string_view kLeave = "leave";    // do_all_leave

}  // namespace helper_request

// Rank and helper run on one machine: numbers stay as the machine has them.
inline std::string as_bytes(const std::vector<Rank>& ranks) {
  return {reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(Rank)};
}

inline std::string as_text(bool value) { return value ? "1" : "0"; }

}  // namespace bootstrap
