// The cores that each task gets near its GPUs, on all known nodes.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/near_cores.h"

#include <gtest/gtest.h>

#include "core/util/text.h"
#include "known_node.h"

namespace bootstrap {
namespace {

NearRequest request_on(const KnownNode& node, std::size_t tasks) {
  NearRequest request{.cores = node.cores(), .places = {}, .allowed = node.cpus};
  for (const auto& group : groups_of_gpus(node.gpus, tasks)) request.places.push_back(place_of(group));
  return request;
}

// By task, the first threads of the cores; a repeated list is written as =.
std::string mapping_on(const std::string& name, std::size_t tasks, bool is_exclusive = false) {
  const auto node = known_node(name);
  auto request = request_on(node, tasks);
  request.is_exclusive = is_exclusive;
  CpuSet first_threads;
  for (const auto& core : node.cores()) first_threads.add(core.first());
  std::vector<std::string> lists;
  std::string last;
  for (const auto& task : find_near_cores(request, node.package_list())) {
    EXPECT_FALSE(task.is_filled) << name;
    const auto list = (task.cpus & first_threads).to_list();
    lists.push_back(list == last ? "=" : list);
    last = list;
  }
  return join(lists, " ");
}

struct Golden {
  std::string_view machine;
  std::size_t tasks;
  std::string_view cores;
};

constexpr Golden kShared[] = {
    {"dgx-1", 1, "0-39"},
    {"dgx-1", 2, "0-19 20-39"},
    {"dgx-1", 8, "0-19 = = = 20-39 = = ="},
    {"dgx-a100", 1, "16-31,48-63,80-95,112-127"},
    {"dgx-a100", 2, "16-31,48-63 80-95,112-127"},
    {"dgx-a100", 4, "48-63 16-31 112-127 80-95"},
    {"dgx-a100", 8, "48-63 = 16-31 = 112-127 = 80-95 ="},
    {"dgx-h100", 2, "0-55 56-111"},
    {"dgx-h100", 8, "0-55 = = = 56-111 = = ="},
    {"hgx-h100", 8, "0-47 = = = 48-95 = = ="},
    {"b200-snc", 4, "0-23 48-71 72-95 120-143"},
    {"b200-snc", 8, "0-23 = 48-71 = 72-95 = 120-143 ="},
    {"gh200", 1, "0-71"},
    {"gh200-quad", 2, "0-143 144-287"},
    {"gh200-quad", 4, "0-71 72-143 144-215 216-287"},
    {"gb200", 2, "0-71 72-143"},
    {"gb200", 4, "0-71 = 72-143 ="},
    // LUMI's page: map_cpu:49,57,17,25,1,9,33,41; Frontier's: the same L3 caches.
    {"eight-gpu-two-per-numa", 8, "48-55 56-63 16-23 24-31 0-7 8-15 32-39 40-47"},
    {"eight-gpu-two-per-numa", 4, "48-63 16-31 0-15 32-47"},
    {"mi300a", 4, "0-23 24-47 48-71 72-95"},
    // JUWELS Booster's page: NUMA nodes 3, 1, 7, 5 for tasks 0 to 3.
    {"juwels-booster", 4, "18-23 6-11 42-47 30-35"},
    {"juwels-booster", 2, "6-11,18-23 30-35,42-47"},
    {"aurora", 3, "0-51 0-103 52-103"},
    {"aurora", 6, "0-51 = = 52-103 = ="},
    // Polaris' page: the order of GPUs is the reverse of the NUMA nodes.
    {"polaris", 4, "24-31 16-23 8-15 0-7"},
    {"polaris", 8, "24-31 16-23 8-15 0-7 24-31 16-23 8-15 0-7"},
    {"two-socket-4gpu", 4, "0-39 = 40-79 ="},
};

constexpr Golden kExclusive[] = {
    {"dgx-h100", 8, "0-13 14-27 28-41 42-55 56-69 70-83 84-97 98-111"},
    {"dgx-a100", 8, "48-55 56-63 16-23 24-31 112-119 120-127 80-87 88-95"},
    {"aurora", 3, "0-33 34-68 69-103"},
    {"aurora", 6, "0-16 17-33 34-51 52-68 69-85 86-103"},
    {"gb200", 4, "0-35 36-71 72-107 108-143"},
    {"polaris", 8, "24-27 16-19 8-11 0-3 28-31 20-23 12-15 4-7"},
};

TEST(NearCores, AreSharedByTheTasksOfAPlace) {
  for (const auto& [machine, tasks, cores] : kShared) {
    EXPECT_EQ(mapping_on(std::string(machine), tasks), cores) << machine << " " << tasks;
  }
}

TEST(NearCores, AreDividedOnRequest) {
  for (const auto& [machine, tasks, cores] : kExclusive) {
    EXPECT_EQ(mapping_on(std::string(machine), tasks, true), cores) << machine << " " << tasks;
  }
}

TEST(NearCores, NoCoreHasTwoTasksAndNoCoreIsCut) {
  for (const auto& [name, node] : known_nodes()) {
    for (const std::size_t tasks : {1U, 2U, 3U, 4U, 5U, 8U}) {
      auto request = request_on(node, tasks);
      request.is_exclusive = true;
      CpuSet taken;
      const auto found = find_near_cores(request, node.package_list());
      for (std::size_t task = 0; task < tasks && !node.gpus.empty() && tasks <= node.cpus.count(); ++task) {
        const auto& [cores, is_filled] = found[task];
        EXPECT_FALSE(cores.empty()) << name << " " << tasks;
        EXPECT_TRUE((cores & taken).empty()) << name << " " << tasks;
        EXPECT_TRUE(is_filled || cores.is_within(request.places[task])) << name << " " << tasks;
        for (const auto cpu : cores.members()) EXPECT_TRUE(node.core_of(cpu).is_within(cores)) << name;
        taken = taken | cores;
      }
    }
  }
}

// By number, the first threads of cores that no task has.
TEST(NearCores, SomeStayIdleWhereDividingIsAsked) {
  const auto idle_on = [](const std::string& name) {
    const auto node = known_node(name);
    auto request = request_on(node, 8);
    request.is_exclusive = true;
    CpuSet taken, idle;
    for (const auto& task : find_near_cores(request, node.package_list())) taken = taken | task.cpus;
    for (const auto& core : node.cores()) {
      if ((core & taken).empty()) idle.add(core.first());
    }
    return idle.to_list();
  };
  EXPECT_EQ(idle_on("dgx-a100"), "0-15,32-47,64-79,96-111");
  EXPECT_EQ(idle_on("b200-snc"), "24-47,96-119");
  EXPECT_EQ(idle_on("juwels-booster"), "0-5,12-17,24-29,36-41");
  for (const auto* const name : {"dgx-h100", "hgx-h100", "eight-gpu-two-per-numa", "mi300a", "polaris", "gb200"}) {
    EXPECT_EQ(idle_on(name), "") << name;
  }
}

TEST(NearCores, ATaskWithTooFewGetsOthersOfThePackageFirst) {
  const auto node = known_node("dgx-a100");
  auto request = request_on(node, 8);
  request.needed = 20;  // two of them want 40 of the 32 CPUs near their GPUs
  const auto shared = find_near_cores(request, node.package_list());
  EXPECT_TRUE(shared[0].is_filled);
  EXPECT_EQ(shared[0].cpus, node.packages.at(0));
  request.is_exclusive = true;
  const auto alone = find_near_cores(request, node.package_list());
  EXPECT_EQ(alone[0].cpus.to_list(), "4-5,48-55,132-133,176-183");
  EXPECT_TRUE(alone[0].is_filled);
}

TEST(NearCores, TwoTasksNearOneCoreKeepTheOtherCoreToo) {
  const auto node = known_node("two-cpus");
  const auto found = find_near_cores({.cores = node.cores(), .places = {cpus("1"), cpus("1")}, .allowed = cpus("0-1")},
                                     node.package_list());
  EXPECT_EQ(found[0].cpus, cpus("0-1"));
  EXPECT_TRUE(found[0].is_filled);
}

TEST(NearCores, AStepWithoutCoresNearTheGpuKeepsItsOwn) {
  const auto node = known_node("dgx-h100");
  auto request = request_on(node, 2);
  request.allowed = cpus("56-60");
  const auto found = find_near_cores(request, node.package_list());
  EXPECT_TRUE(found[0].cpus.empty());
  EXPECT_EQ(found[1].cpus, cpus("56-60"));
}

TEST(Nearness, GoesByTheFarthestCore) {
  const auto lumi = std::vector{known_node("eight-gpu-two-per-numa").gpus[4]};
  EXPECT_EQ(nearness_of(cpus("0-7,64"), lumi), Nearness::kL3);
  EXPECT_EQ(nearness_of(cpus("7-8"), lumi), Nearness::kNumaNode);
  EXPECT_EQ(nearness_of(cpus("7,20"), lumi), Nearness::kPackage);
  const auto h100 = std::vector{known_node("dgx-h100").gpus[4]};
  EXPECT_EQ(nearness_of(cpus("56-111"), h100), Nearness::kNumaNode);
  EXPECT_EQ(nearness_of(cpus("55-111"), h100), Nearness::kAcross);
  EXPECT_EQ(nearness_of(cpus("1"), {Gpu{}}), Nearness::kUnknown);
}

TEST(Nearness, TheTableHasTheFarRanksFirstAndAnOptionForThem) {
  NearRow near{"0-13", "0", "0000:1b:00.0", "mlx5_0", "0-55", Nearness::kNumaNode};
  auto far = near;
  far.nearness = Nearness::kAcross;
  const auto table = near_table({near, far}, {"0 on a", "1 on a"});
  EXPECT_LT(table.find("1 on a"), table.find("0 on a"));
  EXPECT_NE(table.find("\n1 of 2 ranks may run on cores far from the GPU: start the program with slurm-bootstrap near"),
            std::string::npos);
  far.near.clear();
  EXPECT_NE(near_table({near, far}, {"0", "1"}).find("--gres-flags=enforce-binding"), std::string::npos);
  EXPECT_NE(near_table({near}, {"0"}).find("all ranks run on cores near their GPU\n"), std::string::npos);
}

}  // namespace
}  // namespace bootstrap
