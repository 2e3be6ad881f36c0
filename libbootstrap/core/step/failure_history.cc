// The failures of one step in the order in which they arrived, which of them is the first, and the sentence about it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/step/failure.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// Ranks that fail for the same reason fail at once. A rank whose failure makes the others fail is ahead of them: they
// need time to notice it, and to end.
constexpr std::uint64_t kAheadOfOthers = 100;    // ms
constexpr std::uint64_t kTimeOfAllAlike = 1000;  // ms, on nodes that are not equally busy

constexpr std::size_t kMostNamed = 8;
constexpr std::size_t kMostArrivals = 10000;  // enough to find the first, and whether most are alike

}  // namespace

void FailureHistory::add(const Failure& failure, std::uint64_t now) {
  if (is_dropped_ || is_ended_on_request(failure) || arrivals_.size() == kMostArrivals) return;
  if (is_success(failure)) {
    if (arrivals_.empty() && finished_.size() < kMostArrivals) finished_.push_back(failure);
    return;
  }
  const auto is_same = [&](const Arrival& arrival) { return arrival.failure.rank == failure.rank; };
  if (std::any_of(arrivals_.begin(), arrivals_.end(), is_same)) return;
  arrivals_.push_back({failure, now});
}

std::optional<std::uint64_t> FailureHistory::first_arrival() const {
  if (is_dropped_ || arrivals_.empty()) return std::nullopt;
  return arrivals_.front().at;
}

// How many tasks ended as the first one did, at the same time; 0 where one of them is to be named. Those that were
// killed meanwhile do not count: with --kill-on-bad-exit srun kills all tasks that have not ended yet.
std::uint32_t FailureHistory::count_alike() const {
  const auto& first = arrivals_.front();
  std::uint32_t alike = 0;
  for (const auto& [failure, at] : arrivals_) {
    if (is_killed(failure)) continue;
    if (failure.wait_status != first.failure.wait_status || at - first.at > kTimeOfAllAlike) return 0;
    if (++alike == 2 && at - first.at > kAheadOfOthers) return 0;
  }
  return alike > 1 && 2 * alike > tasks_ ? alike : 0;
}

// The others may have failed since they waited for these.
std::string FailureHistory::describe_finished() const {
  if (finished_.empty()) return {};
  constexpr std::string_view kHow = " ended before that with exit code 0";
  if (finished_.size() == 1) return cat({"; ", failing_task(finished_.front()), kHow});
  std::vector<Rank> named;
  for (std::size_t i = 0; i < std::min(finished_.size(), kMostNamed); ++i) named.push_back(finished_[i].rank);
  const auto more = finished_.size() - named.size();
  return cat({"; tasks ", join(named, ", "), more == 0 ? "" : cat({" and ", std::to_string(more), " more"}), kHow});
}

std::string FailureHistory::sentence(bool others_run) const {
  if (is_dropped_ || arrivals_.empty()) return {};
  const auto& first = arrivals_.front().failure;
  if (is_killed(first) && !first.is_outlived && !others_run) {
    // Slurm kills all tasks: a task that alone was killed was killed by another process.
    const auto is_also_killed = [](const Arrival& arrival) { return is_killed(arrival.failure); };
    const auto killed = std::count_if(arrivals_.begin(), arrivals_.end(), is_also_killed);
    if (killed > 1 || arrivals_.size() == 1) return {};
  }
  if (const auto alike = is_killed(first) ? 0 : count_alike(); alike != 0) {
    const auto who = alike == tasks_ ? cat({"all ", std::to_string(tasks_), " tasks"})
                                     : cat({std::to_string(alike), " of ", std::to_string(tasks_), " tasks"});
    // Perhaps it let the others down within that time: its last words are worth reading.
    return cat({who, " failed in the same way, ", failing_task(first), " first: ", exit_cause(first), ", ",
                failure_time(first), describe_finished()});
  }
  return cat(
      {failing_task(first), " failed first: ", exit_cause(first), ", ", failure_time(first), describe_finished()});
}

}  // namespace bootstrap
