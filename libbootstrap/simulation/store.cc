// A peer for comparison: the ids of the roots over PyTorch's TCPStore, one server for all ranks.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/store.h"

#include <algorithm>

namespace bootstrap::simulation {

void Store::begin(Rank rank) {
  if (rank != 0) return connect(rank, world_.constants().connect_retry);
  world_.run_on(0, world_.constants().store_listen, [this] {
    is_listening_ = true;
    end_ = std::max(end_, world_.queue().now());
  });
}

// `pause`: until TCP tries again when the backlog is full.
void Store::connect(Rank rank, Seconds pause) {
  const auto& constants = world_.constants();
  const Node node = world_.scenario().node_of(rank);
  world_.wait(node == 0 ? constants.local_message : constants.hop, [this, rank, node, pause] {
    const auto& known = world_.constants();
    const bool is_full = static_cast<double>(thread_.waiting()) >= known.store_backlog;
    if (!is_listening_) return world_.wait(known.store_retry, [this, rank, pause] { connect(rank, pause); });
    if (is_full) return world_.wait(pause, [this, rank, pause] { connect(rank, world_.next_retry(pause)); });
    const double keys = world_.scenario().root_ranks();
    const auto work = (known.store_rank + known.store_key * keys) * world_.noise().factor();
    thread_.serve(work, [this, node, bytes = known.id_bytes * keys] {
      const auto arrive = [this] { end_ = std::max(end_, world_.queue().now()); };
      if (node == 0) return arrive();
      world_.send(0, node, world_.constants().hop, bytes, arrive);
    });
  });
}

}  // namespace bootstrap::simulation
