// A call of srun's that may take for ever, such as one of slurmctld or of a name server, given up after a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace bootstrap {

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
