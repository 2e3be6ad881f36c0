// Whether this process was sent a signal that one of its threads waits for: how srun hears Ctrl-C, timeout(1), its
// alarm.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "probe/file_tree.h"

namespace bootstrap {

// The kernel does not say which signals a process has got. A thread that sits in sigwait(3) gives up its core once for
// each of them, and the kernel counts that. A process without such a thread was never signalled, as far as this knows.
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

}  // namespace bootstrap
