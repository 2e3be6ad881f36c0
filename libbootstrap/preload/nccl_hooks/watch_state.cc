// What a watched call and the thread that watches it tell each other.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/watch_state.h"

#include <utility>

namespace bootstrap {
namespace {

constexpr std::chrono::seconds kQuestionPause{2};

}  // namespace

WatchState::WatchState(const HookedStep& the_step, const WaitingCall& the_call)
    : step(the_step), call(the_call), ranks_{the_call.rank} {
  for (std::uint32_t rank = 0; rank < call.old_ranks; ++rank) {
    if (rank != call.rank) ranks_.push_back(rank);
  }
}

bool WatchState::join(const WaitingCall& other) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return false;
  ranks_.push_back(other.rank);
  ++calls_;
  return true;
}

bool WatchState::leave() {
  const std::lock_guard lock(mutex_);
  if (--calls_ > 0) return false;
  is_over_ = true;
  changed_.notify_all();
  return true;
}

void WatchState::fail(std::string sentence) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = std::move(sentence);
  is_over_ = true;
  changed_.notify_all();
}

void WatchState::end() {
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

void WatchState::note_question() {
  const std::lock_guard lock(mutex_);
  is_asked_for_ = true;
  last_question_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

bool WatchState::is_over_before(Deadline time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, time, [this] { return is_over_; });
}

bool WatchState::is_waited_for() const {
  const std::lock_guard lock(mutex_);
  return !is_asked_for_ || std::chrono::steady_clock::now() - last_question_ < kQuestionPause;
}

bool WatchState::is_over_before_question() {
  const auto now = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_over_ || !is_asked_for_ || last_question_ + kQuestionPause >= now; });
  return is_over_;
}

bool WatchState::has_failed() const {
  const std::lock_guard lock(mutex_);
  return !failure_.empty();
}

CallAttendance WatchState::attendance() const {
  const std::lock_guard lock(mutex_);
  return {.version = call.version, .ranks = ranks_, .ended = {}, .failure = failure_};
}

}  // namespace bootstrap
