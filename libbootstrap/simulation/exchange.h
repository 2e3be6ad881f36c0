// One exchange of the step: put, fence, and the values that each rank reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "simulation/fence.h"
#include "simulation/world.h"

namespace bootstrap::simulation {

struct ExchangeKind {
  bool is_first = false;   // of the step: the nodes connect to each other
  bool makes_ids = false;  // of NCCL, by the roots
};

class Exchange {
 public:
  Exchange(World& world, ExchangeKind kind, RankAction done);

  void begin(Rank rank);

 private:
  void put(Rank rank);
  void arrive(Node node);
  void release(Node node);
  void read(Rank rank);
  void read_values(Rank rank, double count, Action done);
  void share(Node node);
  void finish(Rank rank);
  bool is_root(Rank rank) const;
  double count_values() const;

  World& world_;
  ExchangeKind kind_;
  RankAction done_;
  double values_;
  std::vector<std::uint32_t> missing_;  // ranks of each node that have not come
  std::unique_ptr<Fence> fence_;
};

}  // namespace bootstrap::simulation
