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

// Requests as strings. The first is what they are; the library may be upgraded while the program runs, so the first
// of all has its version. An answer begins with an empty string, or is the number and the message of an error.
namespace helper_request {

inline constexpr std::string_view kRun = "run";
inline constexpr std::string_view kReport = "report";
inline constexpr std::string_view kLeave = "leave";

std::vector<std::string> open(const StepRank& self, Carrier carrier, bool may_follow_another);
std::vector<std::string> run(const CallTag& tag, const Allgather& round);
std::vector<std::string> report(const CallTag& tag, const std::optional<RankReport>& own,
                                const std::vector<Rank>& asked);

}  // namespace helper_request

}  // namespace bootstrap
