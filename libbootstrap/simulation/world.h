// The simulated cluster: nodes with cores, a slurmstepd and a link each, and the time line of what its ranks do.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string_view>
#include <vector>

#include "core/exchange/roots.h"
#include "simulation/constants.h"
#include "simulation/event_queue.h"
#include "simulation/resources.h"

namespace bootstrap::simulation {

using Rank = std::uint32_t;
using Node = std::uint32_t;
using RankAction = std::function<void(Rank)>;
using NodeAction = std::function<void(Node)>;

enum class FenceKind : std::uint8_t { kRing, kTree };

// Which values a rank reads: those of the roots; the same, once for each node; or those of all ranks.
enum class Gets : std::uint8_t { kRoots, kNode, kAll };

struct Scenario {
  std::uint32_t ranks = 1;
  std::uint32_t ranks_per_node = 8;  // the last node has what is left
  std::uint32_t roots = 0;           // 0: one for 256 ranks at most, as the library does
  FenceKind fence = FenceKind::kRing;
  Gets gets = Gets::kRoots;
  std::uint64_t seed = 0;  // 0: without noise

  std::uint32_t nodes() const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
  std::uint32_t root_ranks() const { return roots == 0 ? root_count(ranks) : roots; }
  Node node_of(Rank rank) const { return rank / ranks_per_node; }
  Rank first_rank(Node node) const { return node * ranks_per_node; }
  std::uint32_t ranks_on(Node node) const { return std::min(ranks_per_node, ranks - first_rank(node)); }
};

enum class Phase : std::uint8_t { kLaunch, kTasks, kInit, kFence, kGets, kRoot, kRing };
inline constexpr std::size_t kPhases = 7;

// From the first that begins with it to the last that is done with it.
struct Span {
  Seconds begin = 0;
  Seconds end = 0;
  bool is_there = false;

  Seconds takes() const { return end - begin; }
};

struct TimeLine {
  std::array<Span, kPhases> phases;
  std::uint64_t events = 0;

  const Span& at(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  Seconds end() const;  // of the last phase
};

class World {
 public:
  World(const Constants& constants, const Scenario& scenario);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Constants& constants() const { return constants_; }
  const Scenario& scenario() const { return scenario_; }
  EventQueue& queue() { return queue_; }
  Noise& noise() { return noise_; }

  // Work of a process on the node, of the one thread of its slurmstepd that serves, and a wait that needs no core.
  void run_on(Node node, Seconds work, Action done) { cores(node).run(work * noise_.factor(), std::move(done)); }
  void serve_on(Node node, Seconds work, Action done) { servers_[node].serve(work * noise_.factor(), std::move(done)); }
  void wait(Seconds time, Action done) { queue_.after(time * noise_.factor(), std::move(done)); }

  // A message from node to node; `done` when all of it is there.
  void send(Node from, Node to, Seconds latency, double bytes, Action done);

  // After a connection that was not heard TCP waits twice as long each time (RFC 6298); after seven of them (Linux:
  // tcp_syn_retries) it gives up, and the program begins anew.
  Seconds next_retry(Seconds pause) const {
    return pause >= 64 * constants_.connect_retry ? constants_.connect_retry : 2 * pause;
  }

  Cores& cores(Node node) { return cores_[cores_.size() == 1 ? 0 : node]; }

  void begin(Phase phase);
  void end(Phase phase);
  TimeLine run();

 private:
  const Constants& constants_;
  Scenario scenario_;
  EventQueue queue_;
  Noise noise_;
  std::deque<Cores> cores_;  // of each node, or one set for all
  std::vector<SerialServer> servers_;
  std::vector<Link> links_;
  TimeLine time_line_;
};

}  // namespace bootstrap::simulation
