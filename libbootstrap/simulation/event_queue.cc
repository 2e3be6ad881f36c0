// The heart of the simulator: what happens next, in order of simulated time.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/event_queue.h"

#include <algorithm>
#include <utility>

namespace bootstrap::simulation {

void EventQueue::at(Seconds when, Action action) {
  std::size_t slot = actions_.size();
  if (free_slots_.empty()) {
    actions_.push_back(std::move(action));
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    actions_[slot] = std::move(action);
  }
  events_.push_back({std::max(when, now_), scheduled_++, slot});
  std::push_heap(events_.begin(), events_.end(), IsLater());
}

void EventQueue::run() {
  while (!events_.empty()) {
    std::pop_heap(events_.begin(), events_.end(), IsLater());
    const auto event = events_.back();
    events_.pop_back();
    const auto action = std::move(actions_[event.slot]);
    free_slots_.push_back(event.slot);
    now_ = event.when;
    ++handled_;
    action();
  }
}

}  // namespace bootstrap::simulation
