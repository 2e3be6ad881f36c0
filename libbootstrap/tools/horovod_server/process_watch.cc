// Tells when another process has ended, also one of another user, and on kernels before 5.3 that have no pidfd.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/process_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "core/util/text.h"

namespace bootstrap {
namespace {

Descriptor open_pidfd(pid_t process) {
#ifdef SYS_pidfd_open
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
#else
  errno = ENOSYS;
  (void)process;
  return {};
#endif
}

struct ProcessStat {
  char state = '?';
  std::uint64_t start_time = 0;
};

// Nothing where /proc hides other users' processes (hidepid).
std::optional<ProcessStat> read_stat(pid_t process) {
  const auto path = cat({"/proc/", std::to_string(process), "/stat"});
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return std::nullopt;
  std::array<char, 1024> buffer{};
  const auto count = ::read(file.get(), buffer.data(), buffer.size());
  if (count <= 0) return std::nullopt;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(count));
  // The name of the program stands in parentheses, and may hold spaces and parentheses itself: proc(5).
  const auto after_name = text.rfind(") ");
  if (after_name == std::string_view::npos) return std::nullopt;
  const auto fields = split(text.substr(after_name + 2), ' ');
  constexpr std::size_t kStartTime = 22 - 3;  // field 22 of proc(5); the state is field 3
  if (fields.size() <= kStartTime || fields[0].size() != 1) return std::nullopt;
  return ProcessStat{fields[0].front(), parse_unsigned(fields[kStartTime]).value_or(0)};
}

bool exists(pid_t process) { return ::kill(process, 0) == 0 || errno != ESRCH; }

}  // namespace

Result<ProcessWatch> ProcessWatch::open(pid_t process, bool use_pidfd) {
  const auto missing = [&] {
    return fail(ErrorCode::kMissing, cat({"there is no process ", std::to_string(process), " to wait for"}));
  };
  if (process <= 0) return missing();
  if (use_pidfd) {
    auto pidfd = open_pidfd(process);
    if (pidfd.is_open()) return ProcessWatch(process, std::move(pidfd), 0);
    if (errno == ESRCH) return missing();  // anything else: an old kernel, or a container that forbids the call
  }
  if (!exists(process)) return missing();
  return ProcessWatch(process, {}, read_stat(process).value_or(ProcessStat()).start_time);
}

bool ProcessWatch::has_ended() const {
  if (pidfd_.is_open()) {
    pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&ended, 1, 0) > 0;
  }
  if (!exists(process_)) return true;
  const auto stat = read_stat(process_);
  if (!stat) return false;
  // The number may have been given to another process since.
  return stat->state == 'Z' || stat->state == 'X' || (start_time_ != 0 && stat->start_time != start_time_);
}

}  // namespace bootstrap
