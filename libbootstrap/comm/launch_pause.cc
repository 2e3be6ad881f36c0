// The pause of a young rank before its first message to another node, on releases of Slurm that would lose it.
// SPDX-License-Identifier: Apache-2.0
#include "comm/launch_pause.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "comm/pause.h"
#include "core/launch_wait.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

// Zero where /proc is not readable: the process may have started at this moment.
std::chrono::nanoseconds age_of_process() {
  std::array<char, 1024> text{};
  const int file = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const auto size = ::read(file, text.data(), text.size());
  (void)::close(file);
  const auto ticks = start_ticks({text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))});
  timespec now{};
  if (!ticks || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return {};
  const auto tick = std::chrono::nanoseconds(std::chrono::seconds(1)) / ::sysconf(_SC_CLK_TCK);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec) - *ticks * tick;
}

}  // namespace

void pause_for_launch(Deadline deadline) {
  static const auto start = steady_clock::now() - age_of_process();
  const auto now = steady_clock::now();
  pause_for(std::min(start + kLaunchTime, now + (deadline - now) / 2) - now);
}

}  // namespace bootstrap
