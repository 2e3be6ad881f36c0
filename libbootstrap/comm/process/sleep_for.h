// A thread's pause, in full length also where the program gets signals.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <cerrno>
#include <chrono>

namespace bootstrap {

inline void sleep_for(std::chrono::nanoseconds time) {
  if (time.count() <= 0) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  timespec pause{static_cast<time_t>(seconds.count()), static_cast<long>((time - seconds).count())};
  while (::nanosleep(&pause, &pause) != 0 && errno == EINTR) continue;
}

}  // namespace bootstrap
