// What work waits for in the simulator: cores, threads that do one thing after another, links; and noise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "simulation/event_queue.h"

namespace bootstrap::simulation {

// Cores that take work in the order in which it comes, and keep it to its end. The kernel shares them out in slices
// instead; when the last of all work is done is the same.
class Cores {
 public:
  // No count: as many cores as there is work. A core gives its work `share` of its time, the rest is somebody else's.
  Cores(EventQueue& queue, std::size_t count, double share) : queue_(queue), count_(count), share_(share) {}

  void run(Seconds work, Action done);

 private:
  struct Job {
    Seconds work;
    Action done;
  };
  void begin(Job job);

  EventQueue& queue_;
  std::size_t count_;
  double share_;
  std::size_t busy_ = 0;
  std::deque<Job> waiting_;
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
