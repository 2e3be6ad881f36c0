// The heart of the simulator: what happens next, in order of simulated time.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/event_queue.h"

#include <algorithm>
#include <utility>

namespace bootstrap::simulation {

void EventQueue::at(Seconds when, Action action) {
  events_.push_back({std::max(when, now_), scheduled_++, std::move(action)});
  std::push_heap(events_.begin(), events_.end(), is_later);
}

void EventQueue::run() {
  while (!events_.empty()) {
    std::pop_heap(events_.begin(), events_.end(), is_later);
    const auto event = std::move(events_.back());
    events_.pop_back();
    now_ = event.when;
    ++handled_;
    event.action();
  }
}

}  // namespace bootstrap::simulation
