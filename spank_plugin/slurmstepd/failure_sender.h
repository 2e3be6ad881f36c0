// In slurmstepd: reports to srun how a task of this node has ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/step/failure.h"
#include "core/util/environment.h"

namespace bootstrap {

class FailureSender {
 public:
  // In user_init: reads srun's address. Opens nothing.
  void prepare(const Environment& environment);

  // In task_post_fork: a task of this node runs as `process`.
  void note_task(pid_t process);

  // Sends one datagram to srun's host, which may be lost. Fills in the time, and what the kernel shows of memory and of
  // the other tasks. That takes up to 0.3 s after the first task that was killed.
  void send(Failure failure);

 private:
  static constexpr int kMostFailures = 512;    // of one node: srun compares whether all tasks failed alike
  static constexpr int kMostSuccesses = 64;    // likewise: other tasks may wait for these
  static constexpr int kMostMemoryLooks = 16;  // cgroup version 1 has a folder for each task to read

  bool do_others_go_on(const Failure& failure);

  std::optional<FailureAddress> to_;
  std::string host_;  // srun's, as an address
  std::chrono::steady_clock::time_point start_;
  std::vector<pid_t> tasks_;
  int failures_ = 0;
  int successes_ = 0;
  bool has_looked_at_others_ = false;
};

}  // namespace bootstrap
