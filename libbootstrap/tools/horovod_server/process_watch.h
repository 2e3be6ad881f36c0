// Tells when another process has ended, also one of another user, and on kernels before 5.3 that have no pidfd.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <utility>

#include "core/util/result.h"
#include "probe/descriptor.h"

namespace bootstrap {

class ProcessWatch {
 public:
  // Fails with kMissing if there is no such process. `use_pidfd` is for tests of the other way.
  static Result<ProcessWatch> open(pid_t process, bool use_pidfd = true);

  // Becomes readable when the process has ended; -1: one has to ask has_ended() from time to time.
  int descriptor() const { return pidfd_.get(); }

  // A zombie has ended: its parent may take its time.
  bool has_ended() const;

 private:
  ProcessWatch(pid_t process, Descriptor pidfd, std::uint64_t start_time)
      : process_(process), pidfd_(std::move(pidfd)), start_time_(start_time) {}

  pid_t process_;
  Descriptor pidfd_;
  std::uint64_t start_time_;  // 0: /proc does not show it
};

}  // namespace bootstrap
