// A short-lived process for work that must not run in the program: this file, started as a program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/util/environment.h"
#include "core/util/result.h"
#include "probe/deadline.h"

namespace bootstrap {

// The descriptor on which a helper reads its request and writes its answer.
inline constexpr int kHelperSocket = 3;

// Starts a helper with this environment without LD_PRELOAD, sends it the request and waits for its answer and its end.
// The program does not notice: wait(2) does not find the helper, no signal reports its end, and it has none of the open
// files. Its arguments, its environment and files hold nothing of the request. A late helper goes on, unless it watches
// its socket (helper_socket::end_with_peer). kTimeout: no answer at the deadline. kMissing: it began, and ended without
// an answer. kUnavailable, kUnsupported: it did not begin.
Result<std::vector<std::string>> ask_helper(const std::vector<std::string>& request, const Environment& environment,
                                            Deadline deadline);

// In the helper: the socket to the process that asked.
namespace helper_socket {

// The request, after the other end was informed that the helper has begun; nothing if the other end is gone.
std::optional<std::vector<std::string>> receive();

void send(const std::vector<std::string>& answer);

// From now on the kernel ends this process, by SIGKILL, when the other end closes its socket or ends. send() stops
// that.
void end_with_peer();

}  // namespace helper_socket

// The only argument of a helper that is a program, and not the library.
inline constexpr const char* kHelperArgument = "--helper";

}  // namespace bootstrap
