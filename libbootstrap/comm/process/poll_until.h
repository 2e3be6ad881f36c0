// A wait for a descriptor, with an end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "probe/deadline.h"

namespace bootstrap {

// False at the deadline, or when the descriptor cannot be waited for.
inline bool poll_until(int descriptor, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Deadline::clock::now()).count();
    pollfd ready{descriptor, events, 0};
    const int count = ::poll(&ready, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, INT32_MAX)));
    if (count > 0) return true;
    if (count == 0 || errno != EINTR) return false;
  }
}

}  // namespace bootstrap
