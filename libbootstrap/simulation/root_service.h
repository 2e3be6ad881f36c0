// How the ranks meet in ncclCommInitRank: each checks in with its root, and hears who is next in the ring.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <vector>

#include "simulation/world.h"

namespace bootstrap::simulation {

// One serial thread for each root; two connections for each rank, one there and one back (src/bootstrap.cc of NCCL).
class RootService {
 public:
  RootService(World& world, RankAction met);

  void begin(Rank rank);
  std::uint64_t refused() const { return refused_; }  // connections that found the backlog full

 private:
  struct Visit {
    Rank rank;
    std::uint32_t root;
  };

  void connect(Visit visit, Seconds pause);
  void check_in(Visit visit);
  void answer(Rank rank, std::uint32_t root);
  Node node_of_root(std::uint32_t root) const;
  std::uint32_t ranks_of_root(std::uint32_t root) const;

  World& world_;
  RankAction met_;
  std::uint32_t roots_;
  std::deque<SerialServer> threads_;
  std::vector<bool> is_known_;       // to its own root
  std::vector<bool> is_next_known_;  // by the rank's root: the rank that follows it
  std::uint64_t refused_ = 0;
};

}  // namespace bootstrap::simulation
