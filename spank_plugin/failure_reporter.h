// In slurmstepd: tells srun that a task of this node has failed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/environment.h"
#include "core/failure.h"

namespace bootstrap {

class FailureReporter {
 public:
  // In user_init: whom to tell, as srun said. Opens nothing.
  void prepare(const Environment& environment);

  // One datagram to srun's host; nothing is waited for, and nothing is done about one that is lost. The time and what
  // the kernel says of memory are filled in here.
  void send(Failure failure);

 private:
  static constexpr int kMost = 512;  // of one node: srun tells whether all tasks failed alike

  std::optional<FailureAddress> to_;
  std::string host_;  // srun's, as an address
  std::chrono::steady_clock::time_point start_;
  int sent_ = 0;
};

}  // namespace bootstrap
