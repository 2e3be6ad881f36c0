// Ranks that mpirun started: their ids and values, and the variables of the step around them, which are not theirs.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/step_facts.h"

#include <gtest/gtest.h>

#include "core/exchange/exchanged_values.h"
#include "core/exchange/pmix_environment.h"
#include "core/plan/step_plan.h"
#include "mpirun_environment.h"

namespace bootstrap {
namespace {

std::string value_of(const StepPlan& plan, std::string_view name) { return effective_value(plan, name); }

StepPlan plan_of(const Environment& environment, const MpirunContext& around = {}) {
  return *make_step_plan(*read_task_facts(environment, around), {});
}

void expect_values(const StepPlan& plan, std::initializer_list<std::pair<const char*, std::string>> expected) {
  for (const auto& [name, text] : expected) EXPECT_EQ(value_of(plan, name), text) << name;
}

TEST(MpirunFacts, AnIdIsReadFromTheNameSpace) {
  EXPECT_EQ(to_string(mpirun_id("795672577")), "mpirun-12141.1");  // Open MPI 4.1 prints [12141,1]
  EXPECT_EQ(step_tag(mpirun_id("795672577")), "mpirun-12141.1.0");
  EXPECT_EQ(mpirun_id("prterun-node001-17@1").step, 1U);
  EXPECT_EQ(mpirun_id("prterun-node001-17@1").job, mpirun_id("prterun-node001-17@2").job);
  EXPECT_NE(mpirun_id("prterun-node001-17@1").job, mpirun_id("prterun-node001-18@1").job);
  EXPECT_FALSE(mpirun_id("786432") == (StepId{12, 0, 0})) << "Slurm's step 12.0 is another";
  const CallTag tag{mpirun_id("795672577"), 3, "exchange"};
  EXPECT_EQ(decode_tagged_value(encode_tagged_value(tag, "x"))->tag, tag);
}

TEST(MpirunFacts, TheVariablesOfTheStepAroundAreNotTheRanks) {
  auto environment = with(mpirun_rank_on_one_node(3), {{"SLURM_JOB_ID", "12"},
                                                       {"SLURM_STEP_ID", "0"},
                                                       {"SLURM_PROCID", "1"},
                                                       {"SLURM_STEP_NUM_TASKS", "2"},
                                                       {"SLURM_STEP_RESV_PORTS", "12000-12001"}});
  const auto plan = plan_of(environment);
  expect_values(plan, {{"RANK", "3"},
                       {"WORLD_SIZE", "4"},
                       {"LOCAL_RANK", "3"},
                       {"NODE_RANK", "0"},
                       {"GROUP_WORLD_SIZE", "1"},
                       {"MASTER_ADDR", "node001"},
                       {"MASTER_PORT", value_of(plan_of(mpirun_rank_on_one_node(0)), "MASTER_PORT")}});
  EXPECT_EQ(plan.variables[*plan.find("RANK")].from, "OMPI_COMM_WORLD_RANK");
}

TEST(MpirunFacts, ARankOfSlurmStaysOneWithLeftoversOfMpirun) {
  auto environment = with(two_by_two(2), {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_NAMESPACE", "slurm.pmix.12.0"}});
  EXPECT_FALSE(is_mpirun_rank(environment));
  EXPECT_EQ(read_task_facts(environment)->local_ranks.front(), 2U);
  environment.set("PMIX_NAMESPACE", "795672577");  // control
  EXPECT_TRUE(is_mpirun_rank(environment));
}

// It is unknown which ranks share a node, and which host rank 0 is on.
TEST(MpirunFacts, OnSeveralNodesARankKnowsOnlyItsOwnPlace) {
  for (int rank = 0; rank < 4; ++rank) {
    const auto plan = plan_of(mpirun_rank(rank));
    expect_values(plan, {{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", std::to_string(rank % 2)},
                         {"LOCAL_WORLD_SIZE", "2"}});
    for (const auto* name : {"NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
      EXPECT_FALSE(plan.find(name)) << name;
    }
    EXPECT_EQ(plan.port_to_reserve, std::nullopt);
    for (const auto& variable : plan.variables) {
      EXPECT_FALSE(variable.name.starts_with("PMIX_")) << "MPI would read it";
      EXPECT_FALSE(variable.framework) << variable.name;
    }
  }
}

TEST(MpirunFacts, OnSeveralNodesTheAddressIsTheUsers) {
  auto environment = with(mpirun_rank(2), {{"MASTER_ADDR", "node001"}});
  const auto ours = plan_of(environment);
  EXPECT_TRUE(ours.is_kept("MASTER_ADDR"));
  EXPECT_EQ(value_of(ours, "MASTER_ADDR"), "node001");
  EXPECT_NE(value_of(ours, "MASTER_PORT"), "");
  environment.set("MASTER_PORT", "4711");
  EXPECT_EQ(value_of(plan_of(environment), "MASTER_PORT"), "4711");
  environment.set("MASTER_ADDR", "localhost");
  EXPECT_FALSE(plan_of(environment).find("MASTER_ADDR")) << "each node would meet alone";
  Settings settings;
  settings.address = {"node001", Source::kEnvironment};
  EXPECT_EQ(value_of(*make_step_plan(*read_task_facts(mpirun_rank(2)), settings), "MASTER_ADDR"), "node001");
  settings.address = {"%h-ib0", Source::kEnvironment};
  EXPECT_FALSE(make_step_plan(*read_task_facts(mpirun_rank(2)), settings)->find("MASTER_ADDR"));
}

TEST(MpirunFacts, ContradictionsAreRefused) {
  for (const auto* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    for (const auto* value : {"", "-1", "two", "99999999999"}) {
      auto environment = with(mpirun_rank(3), {{name, value}});
      EXPECT_FALSE(read_task_facts(environment)) << name << "=" << value;
    }
  }
  const auto refused = [](const char* rank, const char* local_rank, const char* local_size) {
    auto environment = with(mpirun_rank(3), {{"OMPI_COMM_WORLD_RANK", rank},
                                             {"OMPI_COMM_WORLD_LOCAL_RANK", local_rank},
                                             {"OMPI_COMM_WORLD_LOCAL_SIZE", local_size}});
    const auto facts = read_task_facts(environment);
    return !facts && facts.error().code == ErrorCode::kDisagreement;
  };
  EXPECT_TRUE(refused("4", "0", "2")) << "no such rank";
  EXPECT_TRUE(refused("1", "2", "3")) << "two lower ranks, and there is one";
  EXPECT_TRUE(refused("3", "0", "2")) << "one higher rank, and there is none";
  EXPECT_TRUE(refused("3", "2", "4")) << "one node, and two places";
  EXPECT_FALSE(refused("3", "1", "2")) << "the control";
}

TEST(MpirunFacts, GpusGoByLocalRankWithAndWithoutAList) {
  MpirunContext around;
  EXPECT_FALSE(plan_of(mpirun_rank(3), around).find("BOOTSTRAP_GPU")) << "there are none";
  around.gpus = 2;
  const auto without = plan_of(mpirun_rank(3), around);
  EXPECT_EQ(value_of(without, "BOOTSTRAP_GPU"), "1");
  EXPECT_FALSE(without.find("CUDA_VISIBLE_DEVICES"));
  auto environment = with(mpirun_rank(3), {{"CUDA_VISIBLE_DEVICES", "4,6"}});
  EXPECT_EQ(value_of(plan_of(environment, around), "BOOTSTRAP_GPU"), "1");
  EXPECT_EQ(value_of(plan_of(environment, around), "CUDA_VISIBLE_DEVICES"), "4,6");
  environment.set("CUDA_VISIBLE_DEVICES", "");
  EXPECT_FALSE(plan_of(environment, around).find("BOOTSTRAP_GPU")) << "hidden by somebody";
  around.gpus = 1;
  EXPECT_FALSE(plan_of(mpirun_rank(3), around).find("BOOTSTRAP_GPU")) << "two ranks, and one GPU";
  Settings settings;
  settings.gpu_share = {true, Source::kEnvironment};
  EXPECT_EQ(value_of(*make_step_plan(*read_task_facts(mpirun_rank(3), around), settings), "BOOTSTRAP_GPU"), "0");
  settings = {};
  settings.gpu = {GpuMode::kNarrow, Source::kEnvironment};
  around.gpus = 2;
  const auto narrow = *make_step_plan(*read_task_facts(mpirun_rank(3), around), settings);
  EXPECT_EQ(value_of(narrow, "CUDA_VISIBLE_DEVICES"), "1");
}

TEST(MpirunFacts, ReplacesAnOuterStepsValuesAndKeepsTheUsers) {
  auto outer = two_by_two(0);
  const auto plan = *make_step_plan(*read_task_facts(outer), {});
  auto environment = mpirun_rank(3);
  for (const auto& variable : plan.variables) environment.set(variable.name, variable.value(0));
  EXPECT_EQ(value_of(plan_of(environment), "RANK"), "3") << "RANK=0 was the outer step's";
  EXPECT_FALSE(plan_of(environment).find("MASTER_ADDR")) << "so was this";
  environment = mpirun_rank_on_one_node(3);
  environment.set("MASTER_PORT", "4711");
  EXPECT_EQ(value_of(plan_of(environment), "MASTER_PORT"), "4711");
}

TEST(MpirunFacts, TheServerMustBeThisMpiruns) {
  auto environment = mpirun_rank(3);
  environment.set("PMIX_SERVER_URI41", "795672576.1;tcp4://127.0.0.1:59741");
  const auto server = check_pmix_environment(environment, mpirun_id("795672577"), 3);
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_EQ(server->port, 59741);
  EXPECT_FALSE(check_pmix_environment(environment, mpirun_id("795672578"), 3));
  EXPECT_FALSE(check_pmix_environment(environment, mpirun_id("795672577"), 2));
  EXPECT_FALSE(check_pmix_environment(environment, StepId{12141, 1, 0}, 3));
}

TEST(MpirunFacts, TheCommandSeesWhatWasSet) {
  MpirunContext around;
  around.gpus = 4;
  for (auto environment : {mpirun_rank(3), mpirun_rank_on_one_node(3)}) {
    for (const auto& variable : plan_of(environment, around).variables) {
      environment.set(variable.name, variable.value(0));
    }
    const auto task = read_task_plan(environment, around);
    ASSERT_TRUE(task) << task.error().message;
    EXPECT_TRUE(task->is_set);
    EXPECT_TRUE(task->differences.empty()) << task->differences.front();
  }
}

}  // namespace
}  // namespace bootstrap
