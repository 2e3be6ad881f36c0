// What is simulated: a whole start, from srun to NCCL's ring, or a part of it whose ranks begin together.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/start_up.h"

#include <algorithm>

#include "core/util/text.h"
#include "simulation/exchange.h"
#include "simulation/launch.h"
#include "simulation/root_service.h"
#include "simulation/store.h"

namespace bootstrap::simulation {
namespace {

// Three allgathers around the ring of ranks, in both directions at once since 2.28.7: half as many steps as ranks, each
// as long as the others. So it is one wait, the only thing here that is a formula.
void go_around_ring(World& world) {
  const auto& constants = world.constants();
  world.begin(Phase::kRing);
  const std::uint32_t steps_of_one = (world.scenario().ranks + 1) / 2;
  const double steps = constants.allgathers * steps_of_one;
  world.queue().after(steps * constants.ring_step, [&world] { world.end(Phase::kRing); });
}

}  // namespace

Status check_scenario(const Constants& constants, const Scenario& scenario) {
  if (scenario.ranks < 1 || scenario.ranks > kMaxRanks || scenario.ranks_per_node < 1) {
    return fail(ErrorCode::kInvalid, cat({"cannot simulate ", std::to_string(scenario.ranks), " ranks, ",
                                          std::to_string(scenario.ranks_per_node),
                                          " on each node: it takes 1 to 1000000 ranks, and 1 or more on a node"}));
  }
  if (scenario.roots > scenario.ranks) {
    return fail(ErrorCode::kInvalid, cat({"cannot simulate ", std::to_string(scenario.roots), " roots for ",
                                          std::to_string(scenario.ranks), " ranks: at most one a rank is possible"}));
  }
  if (constants.machine_cores > 0 && scenario.nodes() > kMaxNodesOfOneMachine) {
    return fail(ErrorCode::kLimit, cat({"cannot simulate ", std::to_string(scenario.nodes()),
                                        " nodes on one machine (machine_cores is not 0): 512 at most"}));
  }
  return {};
}

TimeLine simulate_start(const Constants& constants, const Scenario& scenario) {
  World world(constants, scenario);
  std::uint32_t met = 0;
  RootService roots(world, [&](Rank) {
    if (++met == scenario.ranks) go_around_ring(world);
  });
  const bool makes_ids = scenario.gets != Gets::kAll;
  Exchange exchange(world, {.is_first = true, .makes_ids = makes_ids}, [&](Rank rank) {
    if (makes_ids) roots.begin(rank);
  });
  Sessions sessions(world, [&](Rank rank) { exchange.begin(rank); });
  Launch launch(world, [&](Rank rank) { sessions.begin(rank); });
  launch.begin();
  return world.run();
}

Seconds simulate_exchange(const Constants& constants, const Scenario& scenario) {
  World world(constants, scenario);
  Exchange exchange(world, {}, [](Rank) {});
  for (Rank rank = 0; rank < scenario.ranks; ++rank) exchange.begin(rank);
  return world.run().at(Phase::kGets).end;
}

Seconds simulate_roots(const Constants& constants, const Scenario& scenario) {
  World world(constants, scenario);
  RootService roots(world, [](Rank) {});
  for (Rank rank = 0; rank < scenario.ranks; ++rank) roots.begin(rank);
  return world.run().at(Phase::kRoot).end;
}

Seconds simulate_store(const Constants& constants, const Scenario& scenario, bool is_listening) {
  World world(constants, scenario);
  Store store(world, is_listening);
  Launch launch(world, [&](Rank rank) { store.begin(rank); });
  launch.begin();
  const auto line = world.run();
  return store.end() - line.at(Phase::kTasks).end;
}

}  // namespace bootstrap::simulation
