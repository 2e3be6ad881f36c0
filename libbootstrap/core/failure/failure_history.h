// In srun: the failures of one step in the order in which they arrived, which of them is the first, and what is said of
// it. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/failure/failure.h"

namespace bootstrap {

class FailureHistory {
 public:
  explicit FailureHistory(std::uint32_t tasks) : tasks_(tasks) {}

  // `now`: milliseconds of any clock that does not go back. A success before the first failure is part of its sentence.
  void add(const Failure& failure, std::uint64_t now);

  // Somebody ended the step before anything of it failed: nothing of it is a failure any more.
  void drop_all() { is_dropped_ = true; }

  // When the first one arrived, if there is one.
  std::optional<std::uint64_t> first_arrival() const;

  // How the step failed, in one sentence without a full stop; empty where nobody can say that a task failed by itself.
  // With others still running, a task that was killed has no such doubt about it.
  std::string sentence(bool others_run) const;

 private:
  struct Arrival {
    Failure failure;
    std::uint64_t at;
  };

  std::uint32_t count_alike() const;
  std::string describe_finished() const;

  std::uint32_t tasks_;
  bool is_dropped_ = false;
  std::vector<Arrival> arrivals_;
  std::vector<Failure> finished_;  // successes before the first of them
};

}  // namespace bootstrap
