// What a watched call and the thread that watches it tell each other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "comm/process/deadline.h"
#include "preload/nccl_hooks/hang_report.h"
#include "preload/nccl_hooks/hooked_step.h"

namespace bootstrap {

class WatchState {
 public:
  WatchState(const HookedStep& the_step, const WaitingCall& the_call);

  const HookedStep& step;
  const WaitingCall call;
  const Deadline start = std::chrono::steady_clock::now();

  // One more call of this process; false where the watch is over.
  bool join(const WaitingCall& other);
  // One call less; true when it was the last one, and the watch is over.
  bool leave();
  void fail(std::string sentence);  // the first one is kept; the watch is over
  void end();                       // the process ends
  void note_question();

  // True when the watch is over before that time.
  bool is_over_before(Deadline time);
  // False for a communicator that is not blocking, when the program has not asked for it in the last seconds.
  bool is_waited_for() const;
  // True when the watch is over before the program asks again. At once for a call that blocks.
  bool is_over_before_question();

  bool has_failed() const;
  // Of this process, without the ranks that have ended.
  CallAttendance attendance() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint32_t> ranks_;
  std::size_t calls_ = 1;
  bool is_over_ = false;
  bool is_asked_for_ = false;
  Deadline last_question_;
  std::string failure_;
};

}  // namespace bootstrap
