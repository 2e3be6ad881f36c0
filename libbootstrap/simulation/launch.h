// From srun to main() of the tasks, and from there to a session with the PMIx server of the node.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "simulation/world.h"

namespace bootstrap::simulation {

// srun's message goes down a tree of slurmds; each slurmstepd forks its tasks one after the other and then lets them
// go.
class Launch {
 public:
  Launch(World& world, RankAction started) : world_(world), started_(std::move(started)) {}

  void begin();

 private:
  struct Span {
    Node first;
    std::uint32_t count;
  };

  // The list of `nodes` is cut into as many parts as the tree is wide; the first of each part gets it, with the rest.
  void forward(Span nodes);
  void reach(Span nodes);
  void start_tasks(Node node);
  void fork_task(Node node, std::uint32_t forked);

  World& world_;
  RankAction started_;
};

// PMIx_Init of each rank: one thread of the node's server answers its ranks one after the other.
class Sessions {
 public:
  Sessions(World& world, RankAction ready) : world_(world), ready_(std::move(ready)) {}

  void begin(Rank rank);

 private:
  World& world_;
  RankAction ready_;
};

}  // namespace bootstrap::simulation
