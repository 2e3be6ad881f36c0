// A call of srun's that may take for ever, such as one of slurmctld or of a name server, given up after a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace bootstrap {

// The time that several calls have together.
class TimeLimit {
 public:
  explicit TimeLimit(std::chrono::milliseconds time) : until_(std::chrono::steady_clock::now() + time) {}

  // 0 when the time is over.
  std::chrono::milliseconds remaining() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  }

 private:
  std::chrono::steady_clock::time_point until_;
};

// Runs `work` in a thread of its own, and waits for it. False: it has not ended in time, or no thread could be had. The
// thread is left behind then, so `work` may touch nothing but what it owns.
bool run_with_deadline(std::function<void()> work, std::chrono::milliseconds deadline);

// The result of `work`; null when it has not ended in time.
template <class Result>
std::shared_ptr<const Result> call_with_deadline(std::function<Result()> work, std::chrono::milliseconds deadline) {
  const auto result = std::make_shared<Result>();
  const auto has_ended = run_with_deadline([result, work = std::move(work)] { *result = work(); }, deadline);
  return has_ended ? result : nullptr;
}

}  // namespace bootstrap
