// The assignment of GPUs to tasks, compared with all possible assignments and, on real machines, with lists that users
// write by hand.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/gpu_assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "core/plan/node_gpus.h"
#include "core/util/text.h"
#include "known_node.h"
#include "plan_values.h"

namespace bootstrap {
namespace {

using Order = std::vector<std::uint32_t>;

Order in_turn(std::size_t count) {
  Order order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

std::uint64_t sum_of(const Distances& distances, const Order& order) {
  std::uint64_t sum = 0;
  for (std::uint32_t task = 0; task < distances.size(); ++task) {
    for (const auto position : positions_of(task, distances.size(), order.size())) {
      sum += distances[task][order[position]];
    }
  }
  return sum;
}

std::uint64_t least_sum(const Distances& distances, std::size_t gpus) {
  auto order = in_turn(gpus);
  auto least = sum_of(distances, order);
  while (std::next_permutation(order.begin(), order.end())) least = std::min(least, sum_of(distances, order));
  return least;
}

// Distances of tasks, each bound within one of the two NUMA nodes of two packages.
Distances random_distances(std::mt19937& source, std::size_t tasks, std::size_t gpus) {
  Order nodes(gpus);
  for (auto& node : nodes) node = source() % 4;
  Distances distances(tasks, Order(gpus));
  for (auto& row : distances) {
    const auto own = source() % 4;
    for (std::size_t gpu = 0; gpu < gpus; ++gpu)
      row[gpu] = nodes[gpu] == own ? kNear : nodes[gpu] / 2 == own / 2 ? kSamePackage : kFar;
  }
  return distances;
}

TEST(AssignGpus, IsAsNearAsTheBestOfAllAssignments) {
  std::mt19937 source(20261121);
  for (int round = 0; round < 3000; ++round) {
    const auto gpus = std::size_t{1} + source() % 6;
    const auto tasks = std::size_t{1} + source() % 8;
    const auto distances = random_distances(source, tasks, gpus);
    auto neighbours = in_turn(gpus);
    std::shuffle(neighbours.begin(), neighbours.end(), source);
    const auto order = assign_gpus(distances, neighbours);
    ASSERT_TRUE(std::is_permutation(order.begin(), order.end(), neighbours.begin(), neighbours.end()));
    ASSERT_LE(sum_of(distances, order), sum_of(distances, in_turn(gpus))) << tasks << " tasks, " << gpus << " GPUs";
    if (tasks <= gpus) {
      ASSERT_EQ(sum_of(distances, order), least_sum(distances, gpus)) << tasks << " tasks, " << gpus << " GPUs";
    }
    ASSERT_EQ(order, assign_gpus(distances, neighbours));
  }
}

// A user's list may be long, and slurmstepd must not search for seconds.
TEST(AssignGpus, KeepsSlurmsOrderOfALongList) {
  std::mt19937 source(1);
  for (const std::size_t gpus : {65U, 256U}) {
    EXPECT_EQ(assign_gpus(random_distances(source, gpus, gpus), in_turn(gpus)), in_turn(gpus));
  }
}

TEST(AssignGpus, KeepsSlurmsOrderIfAllIsEqual) {
  for (std::size_t gpus = 1; gpus <= 32; ++gpus) {
    for (const auto tasks : {gpus, gpus + 1, 2 * gpus + 3}) {
      EXPECT_EQ(assign_gpus(Distances(tasks, Order(gpus, 1000)), in_turn(gpus)), in_turn(gpus));
    }
  }
}

TEST(AssignGpus, MovesNoMoreThanItMust) {
  // Task 0 is near GPU 3 only, the others are near all: tasks 0 and 3 swap, and 1 and 2 stay.
  Distances distances(4, Order(4, 0));
  distances[0] = {2000, 2000, 2000, 0};
  EXPECT_EQ(assign_gpus(distances, in_turn(4)), (Order{3, 1, 2, 0}));
}

TEST(AssignGpus, GroupsAreRunsOfNeighbours) {
  EXPECT_EQ(assign_gpus(Distances(2, Order(4, 0)), in_turn(4)), (Order{0, 2, 1, 3}));
  EXPECT_EQ(assign_gpus(Distances(2, Order(4, 0)), {0, 2, 1, 3}), (Order{0, 1, 2, 3}));
  EXPECT_EQ(assign_gpus(Distances(2, Order(5, 0)), in_turn(5)), (Order{0, 2, 1, 3, 4}));
  EXPECT_EQ(assign_gpus(Distances(1, Order(4, 0)), in_turn(4)), in_turn(4));
  EXPECT_EQ(assign_gpus(Distances(4, Order(8, 0)), in_turn(8)), (Order{0, 2, 4, 6, 1, 3, 5, 7}));
}

TEST(AssignGpus, LeavesTheFarthestGpuOver) {
  const Distances distances{{2000, 0, 0}, {2000, 0, 0}};
  EXPECT_EQ(assign_gpus(distances, in_turn(3)), (Order{2, 1, 0}));  // GPU 1 stays with task 1
}

TEST(AssignGpus, TakesTheSizesOfRealNodesAndMore) {
  std::mt19937 source(1);
  const auto order = assign_gpus(random_distances(source, 112, 112), in_turn(112));
  EXPECT_EQ(std::set<std::uint32_t>(order.begin(), order.end()).size(), 112U);
  EXPECT_TRUE(assign_gpus({}, {}).empty());
}

TEST(PositionsOf, EachTaskHasItsOwnPlaceFirst) {
  for (std::size_t gpus = 1; gpus <= 16; ++gpus) {
    for (std::size_t tasks = 1; tasks <= gpus; ++tasks) {
      std::set<std::uint32_t> seen;
      for (std::uint32_t task = 0; task < tasks; ++task) {
        const auto positions = positions_of(task, tasks, gpus);
        ASSERT_EQ(positions.size(), gpus / tasks);
        ASSERT_EQ(positions.front(), task);
        for (const auto position : positions) ASSERT_TRUE(seen.insert(position).second);
      }
    }
  }
  EXPECT_EQ(positions_of(5, 6, 4), Order{1});
  EXPECT_TRUE(positions_of(0, 1, 0).empty());
}

TEST(Distance, CountsTheCoresOfTheTask) {
  // A NUMA node of two CPUs, in a package of two nodes.
  Gpu gpu{.near = cpus("0-1"), .package = cpus("0-3")};
  EXPECT_EQ(distance(cpus("0-1"), gpu), kNear);
  EXPECT_EQ(distance(cpus("1"), gpu), kNear);
  EXPECT_EQ(distance(cpus("3"), gpu), kSamePackage);
  EXPECT_EQ(distance(cpus("4-7"), gpu), kFar);
  EXPECT_EQ(distance(cpus("1,2"), gpu), kSamePackage / 2);
  EXPECT_EQ(distance(cpus("0-7"), gpu), (0 + 0 + 1000 + 1000 + 4 * 2000) / 8);
  EXPECT_EQ(distance(CpuSet(), gpu), kNear);
  EXPECT_EQ(distance(cpus("0"), Gpu()), kFar);
  gpu.package = {};
  EXPECT_EQ(distance(cpus("3"), gpu), kFar);
}

TEST(ByLocality, PutsNeighboursSideBySideAndKeepsTheOrderOtherwise) {
  const auto at = [](const char* package, const char* near) {
    return Gpu{.near = cpus(near), .package = cpus(package)};
  };
  EXPECT_EQ(by_locality({at("0", "0"), at("1", "1"), at("0", "0"), at("1", "1")}), (Order{0, 2, 1, 3}));
  // The first package in the list stays first, whatever its number.
  EXPECT_EQ(by_locality({at("4-7", "6-7"), at("4-7", "4-5"), at("0-1", "0-1"), at("4-7", "6-7")}), (Order{0, 3, 1, 2}));
  EXPECT_EQ(by_locality({Gpu(), Gpu()}), (Order{0, 1}));
  EXPECT_TRUE(by_locality({}).empty());
}

std::vector<CpuSet> cores_of_tasks(std::string_view text) {
  std::vector<CpuSet> cores;
  for (const auto list : split(text, ' ')) cores.push_back(*CpuSet::parse_list(list == "-" ? "" : list));
  return cores;
}

StepFacts facts_on(const KnownNode& node, std::size_t tasks) {
  const auto vendor = node.gpus.empty() ? GpuVendor::kNvidia : node.gpus.front().vendor;
  const auto gpus = node.gpus.empty() ? std::size_t{4} : gpus_of(node.gpus, vendor).size();
  const auto list = numbers(static_cast<int>(gpus));
  auto facts = one_node(static_cast<int>(tasks), list, list,
                        vendor == GpuVendor::kAmd ? "ROCR_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES");
  facts.gpus_of_node = node.gpus;
  return facts;
}

// Like slurmstepd: makes a plan in user_init, and orders the list when the tasks have their cores.
NodeGpus plan_on(const KnownNode& node, const std::vector<CpuSet>& cores) {
  const Settings settings{.gpu_share = {true, Source::kOption}};
  auto plan = *make_plan(facts_on(node, cores.size()), settings);
  if (plan.step.gpus->order_matters()) order_gpus(*plan.step.gpus, cores);
  return *plan.step.gpus;
}

struct Golden {
  std::string_view machine;
  std::string_view cores;  // of each task; "-": not bound
  std::string_view list;
};

const Golden kGoldens[] = {
    // Two packages of four GPUs. Tasks in blocks, as --distribution=block:block binds them.
    {"dgx-h100", "0-13 14-27 28-41 42-55 56-69 70-83 84-97 98-111", "0,1,2,3,4,5,6,7"},
    // Tasks alternate between the packages, Slurm's default: even ones are on the first. GPUs 0, 2, 5 and 7 stay.
    {"dgx-h100", "0-13 56-69 14-27 70-83 28-41 84-97 42-55 98-111", "0,4,2,6,1,5,3,7"},
    {"dgx-h100", "56-69 70-83 84-97 98-111 0-13 14-27 28-41 42-55", "4,5,6,7,0,1,2,3"},
    {"dgx-h100", "- - - - - - - -", "0,1,2,3,4,5,6,7"},
    {"dgx-h100", "0-223 0-223 0-223 0-223 0-223 0-223 0-223 0-223", "0,1,2,3,4,5,6,7"},
    // Hyperthreads of the second package: the package counts, not the number of the CPU.
    {"dgx-h100", "168-223 112-167 - -", "4,2,0,6,5,3,1,7"},
    // Fewer tasks than GPUs: groups of neighbours, the first of each group at the task's own place.
    {"dgx-h100", "0-55 56-111", "0,4,1,5,2,6,3,7"},
    {"dgx-h100", "56-111 0-55", "4,0,5,1,6,2,7,3"},
    {"dgx-h100", "- -", "0,4,1,5,2,6,3,7"},
    {"dgx-h100", "- - - -", "0,2,4,6,1,3,5,7"},
    {"dgx-h100", "-", "0,1,2,3,4,5,6,7"},
    {"dgx-h100", "56-111", "4,5,6,7,0,1,2,3"},
    {"dgx-h100", "0-13 14-27 56-69", "0,2,4,1,3,5,6,7"},  // two are left over
    {"dgx-1", "0-19,40-59 20-39,60-79 0-19,40-59 20-39,60-79 0-19 20-39 0-19 20-39", "0,4,2,6,1,5,3,7"},
    // Eight NUMA nodes, GPUs at four of them. Each task beside its GPU, as NVIDIA binds them.
    {"dgx-a100", "48-63 48-63 16-31 16-31 112-127 112-127 80-95 80-95", "0,1,2,3,4,5,6,7"},
    // One task on each NUMA node: those without GPUs get one of their package.
    {"dgx-a100", "0-15 16-31 32-47 48-63 64-79 80-95 96-111 112-127", "0,3,2,1,4,7,6,5"},
    {"dgx-a100", "0-63 64-127", "0,4,1,5,2,6,3,7"},
    // LUMI's users write 4,5,2,3,6,7,0,1 by hand for a task on each die.
    {"eight-gpu-two-per-numa", "0-7 8-15 16-23 24-31 32-39 40-47 48-55 56-63", "4,5,2,3,6,7,0,1"},
    {"two-socket-4gpu", "0-9 40-49 10-19 50-59", "0,2,1,3"},
    {"two-socket-4gpu", "0-9 10-19 20-29 30-39", "0,1,2,3"},              // all on one package: no order is better
    {"two-socket-4gpu", "0-9 40-49 10-19 50-59 20-29 60-69", "0,2,1,3"},  // six share four
    {"gh200-quad", "216-287 144-215 72-143 0-71", "3,2,1,0"},
    {"gh200-quad", "0-71 72-143 144-215 216-287", "0,1,2,3"},
    {"none", "0-1 2-3 - -", "0,1,2,3"},
};

TEST(GoldenPlan, RealMachines) {
  for (const auto& golden : kGoldens) {
    const auto plan = plan_on(known_node(std::string(golden.machine)), cores_of_tasks(golden.cores));
    EXPECT_EQ(plan.ordered_list(), golden.list) << golden.machine << ": " << golden.cores;
  }
}

TEST(GoldenPlan, TheOrderMattersOnlyIfGpusAreInDifferentPlaces) {
  EXPECT_FALSE(plan_on(known_node("none"), cores_of_tasks("- -")).order_matters());
  EXPECT_TRUE(plan_on(known_node("dgx-h100"), cores_of_tasks("- -")).order_matters());
}

TEST(GoldenPlan, CoresNearAreThoseOfAllGpusOfATask) {
  const auto plan = plan_on(known_node("gh200-quad"), cores_of_tasks("- -"));
  EXPECT_EQ(cores_near(plan, view_of(plan, 0)).to_list(), "0-143");
  const auto whole = plan_on(known_node("dgx-h100"), cores_of_tasks("56-69"));
  EXPECT_EQ(cores_near(whole, view_of(whole, 0)).to_list(), "0-223");
}

}  // namespace
}  // namespace bootstrap
