// In slurmstepd: tells srun how a task of this node has ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/failure/failure.h"
#include "core/util/environment.h"

namespace bootstrap {

class FailureSender {
 public:
  // In user_init: whom to tell, as srun said. Opens nothing.
  void prepare(const Environment& environment);

  // In task_post_fork: a task of this node runs as `process`.
  void note_task(pid_t process);

  // One datagram to srun's host; nothing is done about one that is lost. The time and what the kernel says of memory
  // and of the other tasks are filled in here, which takes 3 ms after a task that was killed, and once up to 0.3 s.
  void send(Failure failure);

 private:
  static constexpr int kMostFailures = 512;  // of one node: srun tells whether all tasks failed alike
  static constexpr int kMostSuccesses = 64;  // likewise: they matter where others still wait for these tasks

  bool do_others_go_on(const Failure& failure);

  std::optional<FailureAddress> to_;
  std::string host_;  // srun's, as an address
  std::chrono::steady_clock::time_point start_;
  std::vector<pid_t> tasks_;
  int failures_ = 0;
  int successes_ = 0;
  bool is_always_busy_ = false;
};

}  // namespace bootstrap
