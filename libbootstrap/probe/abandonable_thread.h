// A piece of work that may block for ever, done by a thread of its own, so that the caller can stop waiting for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/util/result.h"
#include "core/util/text.h"
#include "probe/deadline.h"

namespace bootstrap {

// Runs `work` in a thread that gets no signals and waits for it until the deadline. True when it has ended. When it
// has not, the thread goes on alone: `work` must own all that it uses, and its end can be asked for later.
class AbandonableThread {
 public:
  Status start(std::function<void()> work);
  bool wait_until(Deadline deadline) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// One such piece of work with a result. kTimeout: `what` has not ended at the deadline. kUnavailable: there is no
// thread or no memory for it.
template <class Value>
Result<Value> call_with_deadline(std::string_view what, std::function<Value()> work, Deadline deadline) {
  const auto value = std::make_shared<std::optional<Value>>();
  AbandonableThread thread;
  if (auto started = thread.start([value, work = std::move(work)] { value->emplace(work()); }); !started) {
    return fail(started.error());
  }
  if (!thread.wait_until(deadline)) return fail(ErrorCode::kTimeout, cat({what, " has not ended before the deadline"}));
  if (!*value) return fail(ErrorCode::kUnavailable, cat({what, " failed: out of memory"}));
  return std::move(**value);
}

}  // namespace bootstrap
