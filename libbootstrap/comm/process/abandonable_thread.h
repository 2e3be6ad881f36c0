// A piece of work that may block for ever, done by a thread of its own, so that the caller can stop waiting for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "comm/process/deadline.h"
#include "core/util/result.h"

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

}  // namespace bootstrap
