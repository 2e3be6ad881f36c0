// Whether a process of this host goes on, or is about to end, and whether this one is at work.
// SPDX-License-Identifier: Apache-2.0
#include "probe/process_state.h"

#include <algorithm>
#include <csignal>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint64_t kExiting = 0x4;  // PF_EXITING of the kernel's include/linux/sched.h

bool is_ending(std::string_view text) {
  const auto stat = parse_process_stat(text);
  return !stat || stat->state == 'Z' || stat->state == 'X' || (stat->flags & kExiting) != 0;
}

// The kernel marks SIGKILL in every thread of a process until the thread acts on it.
bool is_sent_sigkill(std::string_view status) {
  constexpr std::string_view kPending = "SigPnd:";
  for (const auto line : split(status, '\n')) {
    if (!line.starts_with(kPending)) continue;
    const auto pending = parse_hex(trim(line.substr(kPending.size()))).value_or(0);
    return (pending >> (SIGKILL - 1) & 1) != 0;
  }
  return true;
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  // The name is in parentheses and may hold any character; the fields after it are counted from 0, the state.
  constexpr std::size_t kFlags = 6;
  constexpr std::size_t kSystemTicks = 12;
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  const auto fields = split(trim(text.substr(close + 1)), ' ');
  if (fields.size() <= kFlags || fields[0].size() != 1) return std::nullopt;
  const auto number = [&fields](std::size_t i) { return i < fields.size() ? parse_unsigned(fields[i]) : std::nullopt; };
  if (!number(kFlags)) return std::nullopt;
  return ProcessStat{.name = text.substr(open + 1, close - open - 1),
                     .state = fields[0].front(),
                     .parent = number(1).value_or(0),
                     .flags = *number(kFlags),
                     .ticks = number(kSystemTicks - 1).value_or(0) + number(kSystemTicks).value_or(0)};
}

bool runs_on(const FileTree& root, pid_t process) {
  const auto folder = cat({"proc/", std::to_string(process)});
  return !is_sent_sigkill(root.read(cat({folder, "/status"}))) && !is_ending(root.read(cat({folder, "/stat"})));
}

bool is_another_thread_busy(const FileTree& root) {
  const auto self = root.link_name("proc/thread-self");
  const auto threads = root.names_in("proc/self/task");
  return std::any_of(threads.begin(), threads.end(), [&](const std::string& thread) {
    if (thread == self) return false;
    const auto stat = parse_process_stat(root.read(cat({"proc/self/task/", thread, "/stat"})));
    return stat && stat->state != 'S';
  });
}

}  // namespace bootstrap
