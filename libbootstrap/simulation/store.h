// A peer for comparison: the ids of the roots over PyTorch's TCPStore, one server for all ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/world.h"

namespace bootstrap::simulation {

// Every rank connects to rank 0, and reads the keys of all roots there.
class Store {
 public:
  // A client that comes before the server listens tries again much later, unless the server `is_listening` first.
  Store(World& world, bool is_listening) : world_(world), thread_(world.cores(0)), is_listening_(is_listening) {}

  void begin(Rank rank);
  Seconds end() const { return end_; }

 private:
  void connect(Rank rank, Seconds pause);

  World& world_;
  SerialServer thread_;
  bool is_listening_;
  Seconds end_ = 0;
};

}  // namespace bootstrap::simulation
