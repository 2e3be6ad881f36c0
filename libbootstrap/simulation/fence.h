// What the slurmstepds of a step do in a fence that collects data: around a ring, or up and down a tree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "simulation/world.h"

namespace bootstrap::simulation {

// Between the nodes. `contribute` is called once for each node, when all of its ranks have come; `released` once for
// each, when the server of the node has everything.
class Fence {
 public:
  virtual ~Fence() = default;
  virtual void contribute(Node node) = 0;
};

// What each node adds. A fence that is the first of the step connects first.
struct FenceLoad {
  double bytes_of_node = 0;
  bool is_first = false;
};

// One message after the other, each an event: every node passes on what came from the one before it, N - 1 times
// (src/plugins/mpi/pmix/pmixp_coll_ring.c).
std::unique_ptr<Fence> make_ring(World& world, FenceLoad load, NodeAction released);

// The same for many nodes, hop by hop for all nodes at once: N^2 messages are 156 million with 12,500 nodes. As the
// messages themselves where the nodes come together; where they do not, none overtakes another here.
std::unique_ptr<Fence> make_ring_by_hops(World& world, FenceLoad load, NodeAction released);

// Up to the root when a node has its own and those of its children, and down again (pmixp_coll_tree.c).
std::unique_ptr<Fence> make_tree(World& world, FenceLoad load, NodeAction released);

// The one that the scenario asks for.
std::unique_ptr<Fence> make_fence(World& world, FenceLoad load, NodeAction released);

}  // namespace bootstrap::simulation
