// What work waits for in the simulator: cores, threads that do one thing after another, links; and noise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "simulation/event_queue.h"

namespace bootstrap::simulation {

// Cores that share their time out equally among all that is to be done, as the kernel does; one piece of work has one
// core at most.
class Cores {
 public:
  // `count` need not be whole: what other users of a machine leave. 0: as many cores as there is work.
  Cores(EventQueue& queue, double count) : queue_(queue), count_(count) {}

  void run(Seconds work, Action done);

 private:
  struct Job {
    Seconds finished_at;  // on the clock of the work
    std::uint64_t number;
    Action done;
  };
  struct IsLater {
    bool operator()(const Job& a, const Job& b) const {
      return a.finished_at != b.finished_at ? a.finished_at > b.finished_at : a.number > b.number;
    }
  };
  double speed() const { return std::min(1.0, count_ / static_cast<double>(jobs_.size())); }
  void advance();
  void plan_next();
  void finish_first();

  EventQueue& queue_;
  double count_;
  std::vector<Job> jobs_;  // a heap, the next to be finished first
  Seconds clock_ = 0;      // work that each job there has got since the beginning
  Seconds advanced_ = 0;   // when that was so
  std::uint64_t number_ = 0;
  std::uint64_t plan_ = 0;  // of the last event that was planned; those before it are void
};

// A thread: one job after another, in the order in which they come, each on one of the cores.
class SerialServer {
 public:
  explicit SerialServer(Cores& cores) : cores_(&cores) {}

  void serve(Seconds work, Action done);
  std::size_t waiting() const { return jobs_.size(); }  // with the one that is served

 private:
  struct Job {
    Seconds work;
    Action done;
  };
  void begin_next();

  Cores* cores_;
  std::deque<Job> jobs_;
};

// The network interface of a node: it sends one message after another, and receives one after another.
struct Link {
  Seconds free_to_send = 0;
  Seconds free_to_receive = 0;
};

// Factors for the length of a piece of work: 1 on average, never below 1 - `amount`, and now and then far above.
class Noise {
 public:
  Noise(double amount, std::uint64_t seed);
  double factor() { return table_.empty() ? 1 : table_[next() >> 52U]; }

 private:
  std::uint64_t next();

  std::vector<double> table_;  // of 4096, equally probable; empty: no noise
  std::uint64_t state_;
};

}  // namespace bootstrap::simulation
