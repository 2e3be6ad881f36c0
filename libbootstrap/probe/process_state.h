// What the kernel reports about processes and threads of this node, and about the memory of a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "probe/files.h"

namespace bootstrap {

// /proc/PID/stat, see proc(5). Views of the text.
struct ProcessStat {
  std::string_view name;  // at most 15 characters, any of them
  char state = '?';
  pid_t parent = 0;
  bool has_terminal = false;
  bool is_exiting = false;
};

// Allocates nothing.
std::optional<ProcessStat> parse_process_stat(std::string_view text) noexcept;

// False for a process that has gone, that is ending, or that was sent SIGKILL. `root`: "/", except in tests.
bool runs_on(const FileTree& root, pid_t process);

// True if another thread of this process works: it runs, waits for a processor or a disk, or is traced. A thread that
// sleeps, as in poll(2), does not.
bool is_another_thread_busy(const FileTree& root);

// Finds out whether a process received a signal. The kernel does not report that, but a thread in sigwait(3) gives up
// its core once for each signal, and the kernel counts those times. A process without such a thread counts as never
// signalled.
class SignalThread {
 public:
  // `tasks`: the folder of the process's threads, /proc/self/task.
  explicit SignalThread(std::string tasks) : tasks_(std::move(tasks)) {}

  // Looks for the thread and remembers its count. True once it has been found.
  bool find();
  bool was_signalled() const;

 private:
  std::optional<std::uint64_t> count_of(const std::string& thread) const;

  FileTree tasks_;
  std::string thread_;
  std::uint64_t count_ = 0;
};

// True if the kernel ended a process of this step on this node for lack of memory. Reads the cgroup of the step from
// slurmstepd, which is in it. False without a memory cgroup of the step: other cgroups count other processes, too.
bool has_lost_a_process_to_memory(const FileTree& root);

}  // namespace bootstrap
