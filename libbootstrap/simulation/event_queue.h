// The heart of the simulator: what happens next, in order of simulated time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace bootstrap::simulation {

using Seconds = double;
using Action = std::function<void()>;

// Of events at the same time the one that was scheduled first comes first, so that a run is the same every time.
class EventQueue {
 public:
  Seconds now() const { return now_; }
  std::uint64_t handled() const { return handled_; }

  void at(Seconds when, Action action);  // a time that has passed is now
  void after(Seconds delay, Action action) { at(now_ + delay, std::move(action)); }

  // Until nothing is left to happen.
  void run();

 private:
  struct Event {
    Seconds when;
    std::uint64_t number;
    std::size_t slot;  // of `actions_`, which stay where they are while events move in the heap
  };
  struct IsLater {
    bool operator()(const Event& a, const Event& b) const {
      return a.when != b.when ? a.when > b.when : a.number > b.number;
    }
  };

  std::vector<Event> events_;  // a heap, the next one first
  std::vector<Action> actions_;
  std::vector<std::size_t> free_slots_;
  Seconds now_ = 0;
  std::uint64_t scheduled_ = 0;
  std::uint64_t handled_ = 0;
};

}  // namespace bootstrap::simulation
