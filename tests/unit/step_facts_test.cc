// StepFacts from environments: right, or an error that names what is wrong.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/step_facts.h"

#include <gtest/gtest.h>

#include "core/util/text.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

LocalTasks tasks_on_n1(std::vector<Rank> ranks, std::uint32_t job) {
  return {.host = "n1", .ranks = std::move(ranks), .local_id = {}, .component_job = job, .component_size = {}};
}

TEST(StepFacts, OfATask) {
  const auto facts = read_task_facts(two_by_two(2));
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->id, (StepId{12, 0, 0}));
  EXPECT_EQ(facts->layout.size(), 4U);
  EXPECT_EQ(facts->layout.place(2).local_rank, 0U);
  EXPECT_EQ(facts->layout.host_of(2), "node002");
  EXPECT_EQ(facts->local_ranks, std::vector<Rank>({2}));
  EXPECT_TRUE(facts->has_gpus);
  EXPECT_EQ(facts->layout_source, LayoutSource::kDistribution);
}

TEST(StepFacts, SrunsLayoutIsPreferred) {
  auto environment =
      with(two_by_two(0), {{"SLURM_BOOTSTRAP_LAYOUT", "12.0/map:1,0,1,0"}, {"SLURMD_NODENAME", "node002"}});
  const auto facts = read_task_facts(environment);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->layout.host_of(0), "node002");
  EXPECT_EQ(facts->layout_source, LayoutSource::kStepLayout);
}

TEST(StepFacts, ALayoutOfAnotherStepIsIgnored) {
  auto environment = with(two_by_two(0), {{"SLURM_BOOTSTRAP_LAYOUT", "11.0/map:1,0,1,0"}});
  const auto facts = read_task_facts(environment);
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->layout.host_of(0), "node001");
}

TEST(StepFacts, WithoutSrunsLayoutTheOrderThatFitsIsFound) {
  auto environment = two_by_two(1);
  environment.set("SLURMD_NODENAME", "node002");  // rank 1 on the second node: cyclic
  const auto facts = read_task_facts(environment);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->layout.host_of(1), "node002");
  EXPECT_EQ(facts->layout.host_of(2), "node001");
}

TEST(StepFacts, TheLocalIdSettlesTheOrder) {
  // Two nodes with three tasks each: rank 2 is on the first node in block and in cyclic order, as its third or second.
  auto environment = with(two_by_two(2), {{"SLURM_STEP_TASKS_PER_NODE", "3(x2)"},
                                          {"SLURM_STEP_NUM_TASKS", "6"},
                                          {"SLURMD_NODENAME", "node001"},
                                          {"SLURM_LOCALID", "1"}});
  const auto facts = read_task_facts(environment);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->layout.place(2).local_rank, 1U);
}

TEST(StepFacts, EachMissingVariableIsNamed) {
  for (const auto* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NODELIST",
                           "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS"}) {
    auto environment = two_by_two();
    environment.unset(name);
    const auto facts = read_task_facts(environment);
    ASSERT_FALSE(facts) << name;
    EXPECT_EQ(facts.error().code, ErrorCode::kMissing);
    EXPECT_NE(facts.error().message.find(name), std::string::npos);
  }
}

TEST(StepFacts, ContradictionsAreRefused) {
  for (const auto change :
       split("SLURM_STEP_NUM_TASKS=5 SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_TASKS_PER_NODE=3,2 SLURM_PROCID=4 "
             "SLURM_PROCID=-1 SLURM_PROCID=0x1 SLURMD_NODENAME=node002 SLURM_STEP_NODELIST=node[001- "
             "SLURM_STEP_NODELIST=node001 SLURM_JOB_ID=4294967296 SLURM_RESTART_COUNT=x SLURM_DISTRIBUTION=arbitrary "
             "SLURM_STEP_ID=4294967291 SLURM_BOOTSTRAP_LAYOUT=12.0/map:1 SLURM_LOCALID=1",
             ' ')) {
    const auto equals = change.find('=');
    EXPECT_FALSE(read_task_facts(with(two_by_two(), {{change.substr(0, equals), change.substr(equals + 1)}})))
        << change;
  }
  EXPECT_FALSE(read_task_facts(with(two_by_two(), {{"SLURM_STEP_NUM_TASKS", "4 "}})));
  auto environment = with(two_by_two(), {{"SLURM_STEP_NODELIST", std::string(70000, 'n')}});
  EXPECT_EQ(read_task_facts(environment).error().code, ErrorCode::kLimit);
}

TEST(StepFacts, ComponentsOfAHeterogeneousJobDifferInTheirJobId) {
  auto environment = with(two_by_two(), {{"SLURM_STEP_NODELIST", "n[1-3]"},
                                         {"SLURM_STEP_TASKS_PER_NODE", "2,1,1"},
                                         {"SLURM_BOOTSTRAP_LAYOUT", "12.0/12;n3;1;block/13;n[1-2];2,1;cyclic"}});
  const auto facts = read_facts(environment, {12, 0, 0}, tasks_on_n1({0, 2}, 13));
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->local_ranks, std::vector<Rank>({1, 3}));
  EXPECT_EQ(facts->layout.host_of(0), "n3");
  EXPECT_EQ(facts->layout.place(1).node_rank, 1U);
  EXPECT_FALSE(read_facts(environment, {12, 0, 0}, tasks_on_n1({0, 2}, 14)));
}

TEST(StepFacts, AComponentAloneDoesNotGuess) {
  // Rank 0 of the second component is on the first host of the sorted list, as the step's rank 0 would be.
  const LocalTasks local{.host = "node001", .ranks = {0, 1}, .local_id = {}, .component_job = 13, .component_size = 2};
  const auto facts = read_facts(two_by_two(), {12, 0, 0}, local);
  ASSERT_FALSE(facts);
  EXPECT_NE(facts.error().message.find("one component of a heterogeneous step"), std::string::npos);

  auto environment = with(two_by_two(), {{"SLURM_NPROCS", "2"}});
  EXPECT_FALSE(read_task_facts(environment));
}

TEST(StepFacts, ComponentsWithinOneJobDifferInTheirPlace) {
  auto environment = with(two_by_two(), {{"SLURM_STEP_NODELIST", "n[1-2]"},
                                         {"SLURM_STEP_TASKS_PER_NODE", "2,2"},
                                         {"SLURM_BOOTSTRAP_LAYOUT", "12.0/12;n2;2;block/12;n1;2;block"}});
  const auto facts = read_facts(environment, {12, 0, 0}, tasks_on_n1({0, 1}, 12));
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->local_ranks, std::vector<Rank>({2, 3}));
  EXPECT_EQ(facts->layout.host_of(0), "n2");
}

}  // namespace
}  // namespace bootstrap
