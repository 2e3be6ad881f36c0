// Whether a process of this host goes on, or is about to end, and whether this one is at work.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "probe/file_tree.h"

namespace bootstrap {

// /proc/PID/stat, see proc(5). The name is a view of the text.
struct ProcessStat {
  std::string_view name;  // at most 15 characters, any of them
  char state = '?';
  std::uint64_t parent = 0;
  std::uint64_t flags = 0;  // of the kernel
  std::uint64_t ticks = 0;  // of CPU, user and system
};
std::optional<ProcessStat> parse_process_stat(std::string_view text);

// False for a process that has gone, that is ending, or that was sent SIGKILL. `root`: "/", but for tests.
bool runs_on(const FileTree& root, pid_t process);

// Whether a thread of this process other than the caller's is at work: it runs, waits for a processor or for a disk, or
// is traced. One that waits for others, as in poll(2), is not.
bool is_another_thread_busy(const FileTree& root);

}  // namespace bootstrap
