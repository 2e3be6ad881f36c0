// How the ranks meet in ncclCommInitRank: each checks in with its root, and hears who is next in the ring.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/root_service.h"

namespace bootstrap::simulation {

RootService::RootService(World& world, RankAction met)
    : world_(world),
      met_(std::move(met)),
      roots_(world.scenario().root_ranks()),
      is_known_(world.scenario().ranks),
      is_next_known_(world.scenario().ranks) {
  for (std::uint32_t root = 0; root < roots_; ++root) threads_.emplace_back(world.cores(node_of_root(root)));
}

Node RootService::node_of_root(std::uint32_t root) const {
  const auto& scenario = world_.scenario();
  return scenario.node_of(rank_of_root(root, scenario.ranks, roots_));
}

std::uint32_t RootService::ranks_of_root(std::uint32_t root) const {
  const auto ranks = world_.scenario().ranks;
  const auto end = root + 1 == roots_ ? ranks : rank_of_root(root + 1, ranks, roots_);
  return end - rank_of_root(root, ranks, roots_);
}

// With many ranks on one root NCCL lets the i-th of them sleep for i / 7000 s first (NCCL_UID_STAGGER_RATE).
void RootService::begin(Rank rank) {
  const auto& constants = world_.constants();
  const auto ranks = world_.scenario().ranks;
  const auto root = root_of_rank(rank, ranks, roots_);
  const auto first = rank_of_root(root, ranks, roots_);
  const bool is_delayed = ranks_of_root(root) > constants.stagger_threshold;
  world_.begin(Phase::kRoot);
  world_.queue().after(is_delayed ? (rank - first) / constants.stagger_rate : 0, [this, rank, root, first, ranks] {
    world_.run_on(world_.scenario().node_of(rank), world_.constants().root_connect, [this, rank, root, first, ranks] {
      const auto pause = world_.constants().connect_retry;
      connect({rank, root}, pause);
      // The last rank of a run is told by its own root who begins the next run, so that one checks in there, too.
      if (rank == first && roots_ > 1) connect({rank, root_of_rank((rank + ranks - 1) % ranks, ranks, roots_)}, pause);
    });
  });
}

// Who comes while the backlog of a listening socket is full is not heard, and TCP tries again.
void RootService::connect(Visit visit, Seconds pause) {
  world_.wait(world_.constants().hop, [this, visit, pause] {
    auto& thread = threads_[visit.root];
    if (static_cast<double>(thread.waiting()) >= world_.constants().root_backlog) {
      ++refused_;
      return world_.wait(pause, [this, visit, pause] { connect(visit, world_.next_retry(pause)); });
    }
    thread.serve(world_.constants().root_rank / 2 * world_.noise().factor(), [this, visit] { check_in(visit); });
  });
}

// The root answers a rank as soon as it knows that rank and the one behind it in the ring.
void RootService::check_in(Visit visit) {
  const auto ranks = world_.scenario().ranks;
  const Rank before = (visit.rank + ranks - 1) % ranks;
  if (root_of_rank(visit.rank, ranks, roots_) == visit.root) {
    is_known_[visit.rank] = true;
    if (is_next_known_[visit.rank]) answer(visit.rank, visit.root);
  }
  if (root_of_rank(before, ranks, roots_) == visit.root && !is_next_known_[before]) {
    is_next_known_[before] = true;
    if (is_known_[before]) answer(before, visit.root);
  }
}

void RootService::answer(Rank rank, std::uint32_t root) {
  threads_[root].serve(world_.constants().root_rank / 2 * world_.noise().factor(), [this, rank] {
    world_.wait(world_.constants().hop, [this, rank] {
      world_.end(Phase::kRoot);
      met_(rank);
    });
  });
}

}  // namespace bootstrap::simulation
