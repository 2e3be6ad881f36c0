// Whether this process was sent a signal that one of its threads waits for: how srun hears Ctrl-C, timeout(1), its
// alarm.
// SPDX-License-Identifier: Apache-2.0
#include "probe/signal_thread.h"

#include <sys/syscall.h>

#include "core/util/text.h"

namespace bootstrap {

std::optional<std::uint64_t> SignalThread::count_of(const std::string& thread) const {
  constexpr std::string_view kCount = "voluntary_ctxt_switches:";
  const auto status = tasks_.read(cat({thread, "/status"}));
  for (const auto line : split(status, '\n')) {
    if (!line.starts_with(kCount)) continue;
    return parse_unsigned(trim(line.substr(kCount.size())));
  }
  return std::nullopt;
}

bool SignalThread::find() {
  if (!thread_.empty()) return true;
  const auto waiting = cat({std::to_string(SYS_rt_sigtimedwait), " "});
  for (const auto& thread : tasks_.names_in("")) {
    if (!tasks_.read(cat({thread, "/syscall"})).starts_with(waiting)) continue;
    const auto count = count_of(thread);
    if (!count) return false;
    thread_ = thread;
    count_ = *count;
    return true;
  }
  return false;
}

bool SignalThread::was_signalled() const {
  if (thread_.empty()) return false;
  const auto count = count_of(thread_);
  return count && *count != count_;  // the thread is gone: srun is about to end
}

}  // namespace bootstrap
