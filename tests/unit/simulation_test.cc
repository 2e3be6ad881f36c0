// What the simulator says of fences, roots and whole starts, held against closed forms where there are some.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "simulation/exchange.h"
#include "simulation/fence.h"
#include "simulation/report.h"
#include "simulation/root_service.h"

namespace bootstrap::simulation {
namespace {

// Nothing takes any time but what a test sets.
Constants nothing() {
  Constants constants;
  constants.tree_width = 16;
  constants.link = 1e18;
  constants.called_ranks = 1e9;
  constants.root_backlog = constants.store_backlog = 1e9;
  constants.connect_retry = constants.store_retry = 1;
  constants.stagger_threshold = 256;
  constants.stagger_rate = 7000;
  return constants;
}

Constants usual() { return built_in_constants()->values; }

Scenario nodes_of_one(std::uint32_t nodes, FenceKind fence = FenceKind::kRing) {
  return {.ranks = nodes, .ranks_per_node = 1, .roots = 1, .fence = fence};
}

using MakeFence = std::unique_ptr<Fence> (*)(World&, FenceLoad, NodeAction);

// When each node is released; node k contributes k * `skew` after the start.
std::vector<Seconds> run_fence(MakeFence make, const Constants& constants, std::uint32_t nodes, double bytes,
                               Seconds skew = 0) {
  World world(constants, nodes_of_one(nodes));
  std::vector<Seconds> released(nodes, -1);
  const auto fence = make(world, {.bytes_of_node = bytes, .is_first = false}, [&](Node node) {
    EXPECT_EQ(released[node], -1) << "released twice";
    released[node] = world.queue().now();
  });
  for (Node node = 0; node < nodes; ++node) {
    world.queue().at(node * skew, [&, node] { fence->contribute(node); });
  }
  (void)world.run();
  return released;
}

TEST(SimulationFence, RingTakesAHopForEachOtherNode) {
  auto constants = nothing();
  constants.hop = 1;
  for (const std::uint32_t nodes : {1U, 2U, 3U, 10U, 100U}) {
    for (const auto time : run_fence(make_ring, constants, nodes, 0)) EXPECT_DOUBLE_EQ(time, nodes - 1);
  }
}

TEST(SimulationFence, TreeTakesTwoHopsForEachLevel) {
  auto constants = nothing();
  constants.hop = 1;
  constants.tree_width = 4;
  for (const auto& [nodes, levels] : {std::pair{1U, 0}, {2U, 1}, {5U, 1}, {6U, 2}, {21U, 2}, {22U, 3}, {85U, 3}}) {
    const auto times = run_fence(make_tree, constants, nodes, 0);
    EXPECT_DOUBLE_EQ(*std::max_element(times.begin(), times.end()), 2 * levels) << nodes;
    EXPECT_DOUBLE_EQ(times.front(), levels) << nodes;
  }
}

TEST(SimulationFence, TreeCarriesAllBytesToEachChild) {
  auto constants = nothing();
  constants.link = 1;
  const auto times = run_fence(make_tree, constants, 5, 1);
  // The root receives one byte of each of 4 children, one after the other, and sends all 5 to each of them.
  EXPECT_DOUBLE_EQ(*std::max_element(times.begin(), times.end()), 4 + 4 * 5);
}

TEST(SimulationFence, NobodyIsReleasedBeforeTheLastHasCome) {
  auto constants = nothing();
  constants.hop = 0.25;
  for (const auto make : {make_ring, make_ring_by_hops, make_tree}) {
    for (const auto time : run_fence(make, constants, 20, 0, 1)) EXPECT_GE(time, 19);
  }
}

TEST(SimulationFence, RingByHopsIsTheRingOfMessages) {
  auto constants = usual();
  for (const std::uint32_t nodes : {1U, 2U, 3U, 7U, 64U, 200U}) {
    for (const double bytes : {0.0, 250.0, 1e6}) {
      const auto messages = run_fence(make_ring, constants, nodes, bytes);
      const auto hops = run_fence(make_ring_by_hops, constants, nodes, bytes);
      for (Node node = 0; node < nodes; ++node) EXPECT_NEAR(hops[node], messages[node], 1e-9 + 1e-6 * messages[node]);
    }
  }
}

// Nodes that come one after the other: no message overtakes another in the shorter form, so it may be later, not
// sooner.
TEST(SimulationFence, RingByHopsIsCloseWhereNodesComeLate) {
  const auto constants = usual();
  for (const Seconds skew : {1e-5, 1e-4, 1e-3}) {
    const auto messages = run_fence(make_ring, constants, 100, 250, skew);
    const auto hops = run_fence(make_ring_by_hops, constants, 100, 250, skew);
    const auto last = *std::max_element(messages.begin(), messages.end());
    EXPECT_NEAR(*std::max_element(hops.begin(), hops.end()), last, 0.1 * last) << skew;
  }
}

TEST(SimulationRoots, ServeTheirRanksOneAfterTheOther) {
  auto constants = nothing();
  constants.root_rank = 1;
  EXPECT_DOUBLE_EQ(simulate_roots(constants, {.ranks = 200, .ranks_per_node = 8, .roots = 1}), 200);
  // Each run of 50 ranks, and the first of the next run that checks in here, too.
  EXPECT_NEAR(simulate_roots(constants, {.ranks = 200, .ranks_per_node = 8, .roots = 4}), 50.5, 1e-9);
}

TEST(SimulationRoots, AreDelayedByNcclAboveItsThreshold) {
  auto constants = nothing();
  EXPECT_DOUBLE_EQ(simulate_roots(constants, {.ranks = 256, .ranks_per_node = 8, .roots = 1}), 0);
  EXPECT_DOUBLE_EQ(simulate_roots(constants, {.ranks = 10'000, .ranks_per_node = 8, .roots = 1}), 9'999 / 7000.0);
  EXPECT_DOUBLE_EQ(simulate_roots(constants, {.ranks = 10'000, .ranks_per_node = 8, .roots = 0}), 0);
}

TEST(SimulationRoots, AnswerEachRankOnceForAllNumbersOfRoots) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 7U, 64U}) {
    for (std::uint32_t roots = 1; roots <= ranks; ++roots) {
      const auto constants = usual();
      World world(constants, {.ranks = ranks, .ranks_per_node = 4, .roots = roots});
      std::multiset<Rank> met;
      RootService service(world, [&](Rank rank) { met.insert(rank); });
      for (Rank rank = 0; rank < ranks; ++rank) service.begin(rank);
      (void)world.run();
      EXPECT_EQ(met.size(), ranks) << roots << " roots";
      EXPECT_EQ(std::set<Rank>(met.begin(), met.end()).size(), ranks) << roots << " roots";
    }
  }
}

TEST(SimulationRoots, TurnAwayWhatIsBeyondTheBacklog) {
  auto constants = nothing();
  constants.stagger_threshold = 1e9;
  constants.root_rank = 1e-4;
  constants.root_backlog = 100;
  World world(constants, {.ranks = 1000, .ranks_per_node = 8, .roots = 1});
  std::size_t met = 0;
  RootService service(world, [&](Rank) { ++met; });
  for (Rank rank = 0; rank < 1000; ++rank) service.begin(rank);
  const auto line = world.run();
  EXPECT_EQ(met, 1000U);
  EXPECT_GT(service.refused(), 800U);
  EXPECT_GT(line.at(Phase::kRoot).end, 1);
}

TEST(Simulation, EveryRankReadsOnceInAllWays) {
  for (const auto gets : {Gets::kRoots, Gets::kNode, Gets::kAll}) {
    const auto constants = usual();
    World world(constants, {.ranks = 21, .ranks_per_node = 8, .roots = 3, .gets = gets});
    std::multiset<Rank> done;
    Exchange exchange(world, {}, [&](Rank rank) { done.insert(rank); });
    for (Rank rank = 0; rank < 21; ++rank) exchange.begin(rank);
    (void)world.run();
    EXPECT_EQ(done.size(), 21U);
    EXPECT_EQ(std::set<Rank>(done.begin(), done.end()).size(), 21U);
  }
}

TEST(Simulation, ReadsAsManyValuesAsThereAreRootsNotRanks) {
  auto constants = nothing();
  constants.get_client = 1;
  Scenario scenario{.ranks = 1024, .ranks_per_node = 8};
  EXPECT_DOUBLE_EQ(simulate_exchange(constants, scenario), 4 + 8);  // 4 roots, and the claims of 8 ranks of the node
  scenario.gets = Gets::kAll;
  EXPECT_DOUBLE_EQ(simulate_exchange(constants, scenario), 1024);
  scenario.gets = Gets::kNode;
  constants.share_node = 0.5;
  EXPECT_DOUBLE_EQ(simulate_exchange(constants, scenario), 4 + 8 + 0.5);
}

TEST(Simulation, GetsThroughTheServerWaitForEachOther) {
  auto constants = nothing();
  constants.get_server = 1;
  EXPECT_DOUBLE_EQ(simulate_exchange(constants, {.ranks = 1024, .ranks_per_node = 8}), 8 * (4 + 8));
}

TEST(Simulation, RingGrowsWithTheNodesAndTreeWithTheirLogarithm) {
  auto constants = nothing();
  constants.hop = 50e-6;
  const auto ring = [&](std::uint32_t ranks) { return simulate_exchange(constants, {.ranks = ranks}); };
  const auto tree = [&](std::uint32_t ranks) {
    return simulate_exchange(constants, {.ranks = ranks, .fence = FenceKind::kTree});
  };
  EXPECT_NEAR(ring(8'080) / ring(808), 1009.0 / 100, 1e-6);
  EXPECT_LT(tree(8'080), 2 * tree(808));
}

TEST(Simulation, NothingGetsFasterWithMoreRanks) {
  const auto constants = usual();
  for (const auto fence : {FenceKind::kRing, FenceKind::kTree}) {
    TimeLine before;
    for (const std::uint32_t ranks : {8U, 16U, 64U, 256U, 1024U, 4096U}) {
      const auto line = simulate_start(constants, {.ranks = ranks, .ranks_per_node = 8, .roots = 1, .fence = fence});
      EXPECT_GT(line.end(), before.end()) << ranks;
      for (std::size_t i = 0; i < kPhases; ++i)
        EXPECT_GE(line.phases[i].end, before.phases[i].end) << ranks << " " << i;
      before = line;
    }
  }
}

TEST(Simulation, PhasesFollowEachOther) {
  const auto line = simulate_start(usual(), {.ranks = 1000, .ranks_per_node = 8});
  for (std::size_t i = 0; i < kPhases; ++i) {
    EXPECT_TRUE(line.phases[i].is_there) << i;
    EXPECT_GE(line.phases[i].takes(), 0) << i;
    if (i == 0) continue;
    EXPECT_GE(line.phases[i].end, line.phases[i - 1].end) << i;
    EXPECT_GE(line.phases[i].begin, line.phases[i - 1].begin) << i;
  }
}

TEST(Simulation, IsTheSameEveryTimeAndAnotherWithASeed) {
  const auto run = [](std::uint64_t seed) {
    return simulate_start(usual(), {.ranks = 3000, .ranks_per_node = 8, .seed = seed}).end();
  };
  EXPECT_EQ(run(0), run(0));
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
  EXPECT_NE(run(5), run(0));
}

TEST(Simulation, NodesOfOneMachineShareItsCores) {
  auto constants = usual();
  constants.machine_cores = 2;
  const Scenario scenario{.ranks = 64, .ranks_per_node = 16, .roots = 1, .gets = Gets::kAll};
  const auto shared = simulate_exchange(constants, scenario);
  constants.machine_cores = 0;
  const auto apart = simulate_exchange(constants, scenario);
  EXPECT_GT(shared, 5 * apart);
  // All of the work of the ranks is done by two cores.
  EXPECT_GE(shared, 64 * (constants.put_client + 64 * constants.get_client) / 2);
}

TEST(Simulation, EveryConstantCountsInTheRightDirection) {
  const auto rows = simulate_sensitivity(usual(), {.ranks = 320, .ranks_per_node = 8});
  std::set<std::string_view> names;
  for (const auto& row : rows) {
    names.insert(row.name);
    const bool is_speed = row.name == "link" || row.name == "stagger_rate";
    for (const auto* pair : {&row.exchange, &row.roots, &row.start}) {
      EXPECT_LE((*pair)[is_speed ? 1 : 0], 1 + 1e-9) << row.name;
      EXPECT_GE((*pair)[is_speed ? 0 : 1], 1 - 1e-9) << row.name;
    }
  }
  EXPECT_TRUE(names.contains("hop_server"));
  EXPECT_TRUE(names.contains("root_rank"));
  EXPECT_FALSE(names.contains("tree_width"));
  EXPECT_GE(rows.front().most(), rows.back().most());
}

TEST(Simulation, RefusesWhatItCannotDo) {
  auto constants = usual();
  EXPECT_TRUE(check_scenario(constants, {.ranks = kMaxRanks, .ranks_per_node = 1}).has_value());
  EXPECT_FALSE(check_scenario(constants, {.ranks = 0}).has_value());
  EXPECT_FALSE(check_scenario(constants, {.ranks = kMaxRanks + 1}).has_value());
  EXPECT_FALSE(check_scenario(constants, {.ranks = 4, .ranks_per_node = 2, .roots = 5}).has_value());
  constants.machine_cores = 2;
  EXPECT_FALSE(check_scenario(constants, {.ranks = 513, .ranks_per_node = 1}).has_value());
}

TEST(SimulationStore, ServesAllRanksWithOneThread) {
  auto constants = nothing();
  constants.store_rank = 1;
  EXPECT_DOUBLE_EQ(simulate_store(constants, {.ranks = 101, .ranks_per_node = 8}, true), 100);
  constants.store_listen = 0.5;
  EXPECT_DOUBLE_EQ(simulate_store(constants, {.ranks = 101, .ranks_per_node = 8}, false),
                   101);  // all try again after 1 s
}

}  // namespace
}  // namespace bootstrap::simulation
