// One exchange of the step: put, fence, and the values that each rank reads.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/exchange.h"

namespace bootstrap::simulation {

Exchange::Exchange(World& world, ExchangeKind kind, RankAction done)
    : world_(world), kind_(kind), done_(std::move(done)), values_(count_values()) {
  const auto& scenario = world.scenario();
  for (Node node = 0; node < scenario.nodes(); ++node) missing_.push_back(scenario.ranks_on(node));
  const FenceLoad load{.bytes_of_node = values_ * world.constants().value_bytes / scenario.nodes(),
                       .is_first = kind.is_first};
  fence_ = make_fence(world, load, [this](Node node) { release(node); });
}

bool Exchange::is_root(Rank rank) const {
  const auto& scenario = world_.scenario();
  const auto root = root_of_rank(rank, scenario.ranks, scenario.root_ranks());
  return rank_of_root(root, scenario.ranks, scenario.root_ranks()) == rank;
}

// Up to called_ranks each puts a value, so that an error can name the missing; above, the first rank of each node and
// the roots (comm/round.cc). In an allgather all do in any case.
double Exchange::count_values() const {
  const auto& scenario = world_.scenario();
  if (scenario.gets == Gets::kAll || scenario.ranks <= world_.constants().called_ranks) return scenario.ranks;
  double values = scenario.nodes();
  for (std::uint32_t root = 0; root < scenario.root_ranks(); ++root) {
    const auto rank = rank_of_root(root, scenario.ranks, scenario.root_ranks());
    if (rank % scenario.ranks_per_node != 0) ++values;
  }
  return values;
}

void Exchange::begin(Rank rank) {
  world_.begin(Phase::kFence);
  if (!kind_.makes_ids || !is_root(rank)) return put(rank);
  world_.run_on(world_.scenario().node_of(rank), world_.constants().id_create, [this, rank] { put(rank); });
}

void Exchange::put(Rank rank) {
  const Node node = world_.scenario().node_of(rank);
  world_.run_on(node, world_.constants().put_client, [this, node] {
    world_.wait(world_.constants().local_message, [this, node] {
      world_.serve_on(node, world_.constants().fence_server, [this, node] { arrive(node); });
    });
  });
}

void Exchange::arrive(Node node) {
  if (--missing_[node] > 0) return;
  world_.serve_on(node, world_.constants().fence_node, [this, node] { fence_->contribute(node); });
}

// The server keeps all values before it answers its ranks.
void Exchange::release(Node node) {
  world_.serve_on(node, world_.constants().store_value * values_, [this, node] {
    const auto& scenario = world_.scenario();
    for (std::uint32_t local = 0; local < scenario.ranks_on(node); ++local) {
      world_.wait(world_.constants().local_message, [this, rank = scenario.first_rank(node) + local] {
        world_.end(Phase::kFence);
        read(rank);
      });
    }
  });
}

void Exchange::read(Rank rank) {
  const auto& scenario = world_.scenario();
  const Node node = scenario.node_of(rank);
  world_.begin(Phase::kGets);
  // With the ids the ranks of a node read what each other claims to use (comm/unique_ids.cc).
  const double of_node = scenario.ranks_on(node);
  if (scenario.gets == Gets::kAll) return read_values(rank, scenario.ranks, [this, rank] { finish(rank); });
  if (scenario.gets == Gets::kRoots) {
    return read_values(rank, scenario.root_ranks() + of_node, [this, rank] { finish(rank); });
  }
  if (rank != scenario.first_rank(node)) return read_values(rank, of_node, [] {});
  read_values(rank, scenario.root_ranks() + of_node, [this, node] { share(node); });
}

// All at once: the server of the node answers one after the other, those of all its ranks.
void Exchange::read_values(Rank rank, double count, Action done) {
  const auto& constants = world_.constants();
  const Node node = world_.scenario().node_of(rank);
  if (constants.get_server == 0) return world_.run_on(node, constants.get_client * count, std::move(done));
  world_.run_on(node, constants.get_client * count, [this, node, count, done = std::move(done)] {
    world_.wait(world_.constants().local_message, [this, node, count, done] {
      world_.serve_on(node, world_.constants().get_server * count,
                      [this, done] { world_.wait(world_.constants().local_message, done); });
    });
  });
}

// The first rank of the node has read the ids; the others take them from its memory.
void Exchange::share(Node node) {
  const auto& scenario = world_.scenario();
  finish(scenario.first_rank(node));
  for (std::uint32_t local = 1; local < scenario.ranks_on(node); ++local) {
    world_.wait(world_.constants().local_message, [this, node, rank = scenario.first_rank(node) + local] {
      world_.run_on(node, world_.constants().share_node, [this, rank] { finish(rank); });
    });
  }
}

void Exchange::finish(Rank rank) {
  world_.end(Phase::kGets);
  done_(rank);
}

}  // namespace bootstrap::simulation
