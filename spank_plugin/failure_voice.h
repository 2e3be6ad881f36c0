// In slurmstepd: tells srun that a task of this node has failed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/environment.h"
#include "core/failure.h"

namespace bootstrap {

class FailureVoice {
 public:
  // In user_init: whom to tell, as srun said. Opens nothing.
  void prepare(const Environment& environment);

  // One datagram to srun's host; nothing is waited for, and nothing is done about one that is lost.
  void tell(Failure failure);

 private:
  static constexpr int kMost = 16;  // of one node: srun asks for the first of all

  std::optional<FailureAddress> to_;
  std::string host_;  // srun's, as an address
  std::chrono::steady_clock::time_point start_;
  int told_ = 0;
};

}  // namespace bootstrap
