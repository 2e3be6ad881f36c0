// A short-lived process of our own, for work that must not be done in the program's: this file, started as a program.
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

// Starts a helper with this environment but for LD_PRELOAD, sends it the request and waits for its answer and its end.
// The program does not see it: wait(2) does not find it, no signal reports its end, and it has none of the open files.
// Nothing of the request is in its arguments, its environment or a file. A helper that is late goes on, unless it
// watches its socket (helper_socket::end_with_peer). kTimeout: no answer at the deadline. kMissing: it began, and ended
// without one. kUnavailable, kUnsupported: it did not begin.
Result<std::vector<std::string>> ask_helper(const std::vector<std::string>& request, const Environment& environment,
                                            Deadline deadline);

// In the helper: the socket to the process that has asked.
namespace helper_socket {

// Nothing when the other end is gone. Else the other end knows that the helper has begun.
std::optional<std::vector<std::string>> receive();

void send(const std::vector<std::string>& answer);

// From now on the kernel ends this process, by SIGKILL, when the other end closes its socket or has ended. send()
// stops that.
void end_with_peer();

}  // namespace helper_socket

}  // namespace bootstrap
