// Whether a process of this host goes on, or is about to end, and whether this one is at work.
// SPDX-License-Identifier: Apache-2.0
#include "probe/process_state.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/text.h"

namespace bootstrap {
namespace {

// proc(5), /proc/PID/stat: the command is in parentheses and may hold any character; the fields after it are counted
// here from 0, the state.
constexpr std::size_t kState = 0;
constexpr std::size_t kFlags = 6;
constexpr std::uint64_t kExiting = 0x4;  // PF_EXITING of the kernel's include/linux/sched.h

std::vector<std::string_view> fields_of(std::string_view stat) {
  const auto command = stat.rfind(')');
  if (command == std::string_view::npos || command + 2 > stat.size()) return {};
  return split(stat.substr(command + 2), ' ');
}

bool is_ending(std::string_view stat) {
  const auto fields = fields_of(stat);
  if (fields.size() <= kFlags || fields[kState] == "Z" || fields[kState] == "X") return true;
  const auto flags = parse_unsigned(fields[kFlags]);
  return !flags || (*flags & kExiting) != 0;
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

bool runs_on(const FileTree& root, pid_t process) {
  const auto folder = cat({"proc/", std::to_string(process)});
  return !is_sent_sigkill(root.read(cat({folder, "/status"}))) && !is_ending(root.read(cat({folder, "/stat"})));
}

bool is_another_thread_busy(const FileTree& root) {
  const auto self = root.link_name("proc/thread-self");
  const auto threads = root.names_in("proc/self/task");
  return std::any_of(threads.begin(), threads.end(), [&](const std::string& thread) {
    if (thread == self) return false;
    const auto stat = root.read(cat({"proc/self/task/", thread, "/stat"}));
    const auto fields = fields_of(stat);
    return !fields.empty() && fields[kState] != "S";
  });
}

}  // namespace bootstrap
