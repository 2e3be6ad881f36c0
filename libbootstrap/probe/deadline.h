// Waits that end at a deadline: for a descriptor, for a time, and for work that may block forever.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <time.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/util/result.h"
#include "core/util/text.h"

namespace bootstrap {

using Deadline = std::chrono::steady_clock::time_point;

// False at the deadline, or if poll(2) fails. After the deadline false even if the descriptor is ready, so that a loop
// of such calls ends although another process keeps it ready.
bool poll_until(int descriptor, short events, Deadline deadline);

// Sends all of it. False at the deadline, or when the other end is gone.
bool send_all(int socket, std::string_view text, Deadline deadline);

// Sleeps for the full time, also if signals arrive. Inline: the plugin must not contain it.
inline void sleep_for(std::chrono::nanoseconds time) {
  if (time.count() <= 0) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  timespec pause{static_cast<time_t>(seconds.count()), static_cast<long>((time - seconds).count())};
  while (::nanosleep(&pause, &pause) != 0 && errno == EINTR) continue;
}

// Starts a thread that gets no signals, and whose own threads get none. Its stack is 8 MiB at most: `ulimit -s` can ask
// for more than there is. Returns 0 or an error number.
int start_thread(pthread_t& thread, void* (*run)(void*), void* argument);

// Runs `work` in such a thread. The caller waits until a deadline; after that the thread goes on alone, so `work` must
// own all that it uses. A later wait_until() can still find out that it has ended.
class AbandonableThread {
 public:
  Status start(std::function<void()> work);
  bool wait_until(Deadline deadline) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Runs `work` in such a thread and returns its result. kTimeout: `what` has not ended at the deadline. kUnavailable: no
// thread or no memory.
template <class Value>
Result<Value> call_with_deadline(std::string_view what, std::function<Result<Value>()> work, Deadline deadline) {
  const auto result = std::make_shared<std::optional<Result<Value>>>();
  AbandonableThread thread;
  if (auto started = thread.start([result, work = std::move(work)] { result->emplace(work()); }); !started) {
    return fail(started.error());
  }
  if (!thread.wait_until(deadline)) return fail(ErrorCode::kTimeout, cat({what, " has not ended before the deadline"}));
  if (!*result) return fail(ErrorCode::kUnavailable, cat({what, " failed: out of memory"}));
  return std::move(**result);
}

}  // namespace bootstrap
