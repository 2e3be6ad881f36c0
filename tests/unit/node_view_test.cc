// Makes the view of a node from a task's environment.
// SPDX-License-Identifier: Apache-2.0
#include "tools/explain_gpus/node_view.h"

#include <gtest/gtest.h>

#include "core/plan/node_gpus.h"
#include "known_machine.h"
#include "probe/read_environment.h"

namespace bootstrap {
namespace {

using Indices = std::vector<std::uint32_t>;

Environment dgx_step() { return *captured_environment(TEST_DATA_DIR "/steps/dgx-h100.env"); }

NodeView view(const Environment& environment, const std::string& machine, const OwnAccess& access = {}) {
  const auto task = read_task_plan(environment);
  EXPECT_TRUE(task) << task.error().message;
  return node_view_of(*task, machine.empty() ? Topology() : known_machine(machine), access);
}

// The same step as the plugin leaves it, with these settings, for the task of `rank`.
Environment as_set_up(Environment environment, std::uint32_t rank, const std::string& settings) {
  environment.set("SLURM_PROCID", std::to_string(rank));
  environment.set("SLURM_LOCALID", std::to_string(rank));
  LocalTasks local;
  local.host = "dgx001";
  for (Rank one = 0; one < 8; ++one) local.ranks.push_back(one);
  auto facts = *read_facts(environment, {12, 0, 0}, local);
  facts.topology = known_machine("dgx-h100");
  auto plan = *make_step_plan(facts, *read_settings(settings));
  if (plan.gpus) {
    order_gpus(*plan.gpus, bound_cores(environment, 8), facts.topology);
    refresh_gpu_variables(plan, facts);
  }
  for (const auto& variable : plan.variables) environment.set(variable.name, variable.value(rank));
  return environment;
}

TEST(BoundCores, AreReadAsSlurmWritesThem) {
  const auto bound = [](const std::string& type, const std::string& list) {
    Environment environment;
    environment.set("SLURM_CPU_BIND_TYPE", type);
    environment.set("SLURM_CPU_BIND_LIST", list);
    std::string text;
    for (const auto& cores : bound_cores(environment, 3)) text += cores.to_list() + ";";
    return text;
  };
  EXPECT_EQ(bound("mask_cpu:", "0x3,0xC"), "0-1;2-3;0-1;");
  EXPECT_EQ(bound("sockets,mask_cpu:", "0xf"), "0-3;0-3;0-3;");
  EXPECT_EQ(bound("map_cpu:", "2,1,0"), "2;1;0;");
  EXPECT_EQ(bound("none", ""), ";;;");
  EXPECT_EQ(bound("mask_cpu:", "x,,0x"), ";;;");
}

TEST(NodeView, EveryRankHasItsGpuAndSeesAll) {
  const auto drawn = view(dgx_step(), "dgx-h100");
  ASSERT_EQ(drawn.ranks.size(), 8U);
  EXPECT_EQ(drawn.host, "dgx001");
  EXPECT_EQ(drawn.step_gpus.size(), 8U);
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(drawn.ranks[rank].gpus, Indices{rank});
    EXPECT_EQ(drawn.ranks[rank].usable.size(), 8U);
    EXPECT_TRUE(drawn.ranks[rank].cpus.is_within(drawn.topology.gpus[rank].near));
  }
  ASSERT_EQ(drawn.notes.size(), 1U);
  EXPECT_NE(drawn.notes[0].find("did not set up"), std::string::npos);
}

TEST(NodeView, ListsThatDifferAreAssignedAnew) {
  for (const auto* settings : {"option:gpu=first", "option:gpu=narrow", "option:mode=on"}) {
    for (const auto rank : {0U, 5U}) {
      const auto drawn = view(as_set_up(dgx_step(), rank, settings), "dgx-h100");
      EXPECT_TRUE(drawn.notes.empty()) << settings << drawn.notes.front();
      for (std::uint32_t one = 0; one < 8; ++one) EXPECT_EQ(drawn.ranks[one].gpus, Indices{one}) << settings;
      const bool is_narrow = std::string(settings) == "option:gpu=narrow";
      EXPECT_EQ(drawn.ranks[3].usable.size(), is_narrow ? 1U : 8U);
    }
  }
}

TEST(NodeView, AnOrderThatTheTasksCoresDoNotExplainIsNotGuessed) {
  auto environment = as_set_up(dgx_step(), 5, "option:gpu=narrow");
  environment.set("SLURM_CPU_BIND_TYPE", "none");
  environment.set("SLURM_CPU_BIND_LIST", "");
  environment.set("CUDA_VISIBLE_DEVICES", "7");
  const auto drawn = view(environment, "dgx-h100");
  EXPECT_EQ(drawn.ranks[5].gpus, Indices{7});
  EXPECT_FALSE(drawn.ranks[4].knows_gpus);
  ASSERT_EQ(drawn.notes.size(), 1U);
}

OwnAccess access_of(std::uint32_t open_from, std::uint32_t open_to) {
  OwnAccess access;
  access.cores = *CpuSet::parse_list("0-3");
  for (std::uint32_t i = 0; i < 8; ++i) {
    access.devices.push_back({"/dev/nvidia" + std::to_string(i), i >= open_from && i <= open_to});
  }
  return access;
}

TEST(NodeView, HiddenGpusAreMarked) {
  auto environment = dgx_step();
  environment.set("CUDA_VISIBLE_DEVICES", "0");
  environment.set("SLURM_STEP_GPUS", "0");  // as Slurm 22.05 has it in every task
  const auto drawn = view(environment, "", access_of(5, 5));
  EXPECT_EQ(drawn.ranks[0].gpus, Indices{5});
  EXPECT_EQ(drawn.ranks[0].usable, Indices{5});
  EXPECT_EQ(drawn.ranks[0].cpus.to_list(), "0-3");
  EXPECT_FALSE(drawn.ranks[1].knows_gpus);
  EXPECT_EQ(drawn.step_gpus.size(), 8U);
  EXPECT_NE(drawn.notes[0].find("hides all but 1 of the 8 GPUs"), std::string::npos);
}

TEST(NodeView, NothingIsHiddenIfAllAreOpen) {
  const auto drawn = view(dgx_step(), "", access_of(0, 7));
  EXPECT_EQ(drawn.ranks[7].gpus, Indices{7});
  EXPECT_EQ(drawn.topology.gpus.size(), 8U);  // drawn without a topology, too
  EXPECT_EQ(drawn.topology.gpus[7].device, "/dev/nvidia7");
}

TEST(NodeView, GpusThatWereNotAssignedStillBelongToTheStep) {
  const auto drawn = view(as_set_up(dgx_step(), 2, "option:gpu=off"), "dgx-h100");
  EXPECT_EQ(drawn.step_gpus.size(), 8U);
  EXPECT_FALSE(drawn.ranks[2].knows_gpus);
  EXPECT_EQ(drawn.ranks[2].usable.size(), 8U);
}

TEST(NodeView, WithoutGpusItIsOfTheMachineAndTheRanks) {
  auto environment = dgx_step();
  for (const auto* name : {"SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE"}) environment.unset(name);
  const auto drawn = view(environment, "none");
  EXPECT_TRUE(drawn.step_gpus.empty());
  EXPECT_EQ(drawn.ranks.size(), 8U);
}

}  // namespace
}  // namespace bootstrap
