// StepFacts from environments: right facts, or an error that names the fault. Ranks that mpirun started: their ids and
// values, and the variables of the surrounding step, which they must not use. srun's decision, read as it was written.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/step_facts.h"

#include <gtest/gtest.h>

#include "core/exchange/exchanged_values.h"
#include "core/exchange/pmix_environment.h"
#include "core/util/text.h"
#include "plan_values.h"

namespace bootstrap {
namespace {

// Ranks that mpirun of Open MPI 4.1 started, job [12141,1]: four on two nodes.
Environment mpirun_rank(int rank) {
  return environment_of({{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank % 2)},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_COMM_WORLD_NODE_RANK", std::to_string(rank % 2)},
                         {"PMIX_NAMESPACE", "795672577"},
                         {"PMIX_RANK", std::to_string(rank)},
                         {"PMIX_HOSTNAME", rank < 2 ? "node001" : "node002"}});
}

// The same four ranks on node001.
Environment mpirun_rank_on_one_node(int rank) {
  auto environment = mpirun_rank(rank);
  environment.set("OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank));
  environment.set("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  environment.set("PMIX_HOSTNAME", "node001");
  return environment;
}

LocalTasks tasks_on_n1(std::vector<Rank> ranks, std::uint32_t job) {
  return {.host = "n1", .ranks = std::move(ranks), .local_id = {}, .component_job = job, .component_size = {}};
}

TEST(StepFacts, AreReadInATask) {
  const auto facts = succeeded(read_task_facts(two_by_two(2)));
  EXPECT_EQ(facts->id, (StepId{12, 0, 0}));
  EXPECT_EQ(facts->layout.size(), 4U);
  EXPECT_EQ(facts->layout.place(2).local_rank, 0U);
  EXPECT_EQ(facts->layout.host_of(2), "node002");
  EXPECT_EQ(facts->ranks_here, std::vector<Rank>({2}));
  EXPECT_TRUE(facts->has_gpus);
  EXPECT_EQ(facts->layout_source, LayoutSource::kDistribution);
}

TEST(StepFacts, SrunsLayoutIsPreferred) {
  auto environment =
      with(two_by_two(0), {{"SLURM_BOOTSTRAP_LAYOUT", "12.0/map:1,0,1,0"}, {"SLURMD_NODENAME", "node002"}});
  const auto facts = succeeded(read_task_facts(environment));
  EXPECT_EQ(facts->layout.host_of(0), "node002");
  EXPECT_EQ(facts->layout_source, LayoutSource::kStepLayout);
  const auto others = succeeded(read_task_facts(with(two_by_two(0), {{"SLURM_BOOTSTRAP_LAYOUT", "11.0/map:1,0,1,0"}})));
  EXPECT_EQ(others->layout.host_of(0), "node001") << "that of another step";
}

TEST(StepFacts, WithoutSrunsLayoutTheOrderThatFitsIsFound) {
  auto environment = two_by_two(1);
  environment.set("SLURMD_NODENAME", "node002");  // rank 1 on the second node: cyclic
  const auto facts = succeeded(read_task_facts(environment));
  EXPECT_EQ(facts->layout.host_of(1), "node002");
  EXPECT_EQ(facts->layout.host_of(2), "node001");
}

TEST(StepFacts, TheLocalIdSettlesTheOrder) {
  // Two nodes with three tasks each: rank 2 is on the first node in block and in cyclic order, as its third or second.
  auto environment = with(two_by_two(2), {{"SLURM_STEP_TASKS_PER_NODE", "3(x2)"},
                                          {"SLURM_STEP_NUM_TASKS", "6"},
                                          {"SLURMD_NODENAME", "node001"},
                                          {"SLURM_LOCALID", "1"}});
  const auto facts = succeeded(read_task_facts(environment));
  EXPECT_EQ(facts->layout.place(2).local_rank, 1U);
}

TEST(StepFacts, EachMissingVariableIsNamed) {
  for (const auto* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NODELIST",
                           "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS"}) {
    auto environment = two_by_two();
    environment.unset(name);
    const auto error = error_of(read_task_facts(environment));
    EXPECT_EQ(error.code, ErrorCode::kMissing);
    EXPECT_NE(error.message.find(name), std::string::npos) << name;
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
  EXPECT_EQ(error_of(read_task_facts(environment)).code, ErrorCode::kLimit);
}

TEST(StepFacts, ComponentsOfAHeterogeneousJobDifferInTheirJobId) {
  auto environment = with(two_by_two(), {{"SLURM_STEP_NODELIST", "n[1-3]"},
                                         {"SLURM_STEP_TASKS_PER_NODE", "2,1,1"},
                                         {"SLURM_BOOTSTRAP_LAYOUT", "12.0/12;n3;1;block/13;n[1-2];2,1;cyclic"}});
  const auto facts = succeeded(read_facts(environment, {12, 0, 0}, tasks_on_n1({0, 2}, 13)));
  EXPECT_EQ(facts->ranks_here, std::vector<Rank>({1, 3}));
  EXPECT_EQ(facts->layout.host_of(0), "n3");
  EXPECT_EQ(facts->layout.place(1).node_rank, 1U);
  EXPECT_FALSE(read_facts(environment, {12, 0, 0}, tasks_on_n1({0, 2}, 14)));
}

TEST(StepFacts, AComponentAloneDoesNotGuess) {
  // Rank 0 of the second component is on the first host of the sorted list, as the step's rank 0 would be.
  const LocalTasks local{.host = "node001", .ranks = {0, 1}, .local_id = {}, .component_job = 13, .component_size = 2};
  const auto error = error_of(read_facts(two_by_two(), {12, 0, 0}, local));
  EXPECT_NE(error.message.find("one component of a heterogeneous step"), std::string::npos);

  auto environment = with(two_by_two(), {{"SLURM_NPROCS", "2"}});
  EXPECT_FALSE(read_task_facts(environment));
  // srun --preserve-env keeps the numbers of a larger job.
  environment = with(two_by_two(), {{"SLURM_NPROCS", "8"}, {"SLURM_NTASKS", "8"}});
  EXPECT_TRUE(read_task_facts(environment));
}

TEST(StepFacts, ComponentsWithinOneJobDifferInTheirPlace) {
  auto environment = with(two_by_two(), {{"SLURM_STEP_NODELIST", "n[1-2]"},
                                         {"SLURM_STEP_TASKS_PER_NODE", "2,2"},
                                         {"SLURM_BOOTSTRAP_LAYOUT", "12.0/12;n2;2;block/12;n1;2;block"}});
  const auto facts = succeeded(read_facts(environment, {12, 0, 0}, tasks_on_n1({0, 1}, 12)));
  EXPECT_EQ(facts->ranks_here, std::vector<Rank>({2, 3}));
  EXPECT_EQ(facts->layout.host_of(0), "n2");
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
                       {"MASTER_PORT", value(plan_of(mpirun_rank_on_one_node(0)), "MASTER_PORT")}});
  EXPECT_EQ(variable(plan, "RANK").from, "OMPI_COMM_WORLD_RANK");
}

TEST(MpirunFacts, ARankOfSlurmStaysOneWithLeftoversOfMpirun) {
  auto environment = with(two_by_two(2), {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_NAMESPACE", "slurm.pmix.12.0"}});
  EXPECT_FALSE(is_mpirun_rank(environment));
  EXPECT_EQ(read_task_facts(environment)->ranks_here.front(), 2U);
  environment.set("PMIX_NAMESPACE", "795672577");  // control
  EXPECT_TRUE(is_mpirun_rank(environment));
}

// Neither the ranks on each node nor the host of rank 0 are known.
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
    EXPECT_EQ(plan.port(), std::nullopt);
    for (const auto& variable : plan.variables) {
      EXPECT_FALSE(variable.name.starts_with("PMIX_")) << "MPI would read it";
      EXPECT_FALSE(variable.framework) << variable.name;
    }
  }
}

TEST(MpirunFacts, OnSeveralNodesTheAddressIsTheUsers) {
  auto environment = with(mpirun_rank(2), {{"MASTER_ADDR", "node001"}});
  const auto ours = plan_of(environment);
  EXPECT_TRUE(is_kept(ours.variables, "MASTER_ADDR"));
  EXPECT_EQ(value(ours, "MASTER_ADDR"), "node001");
  EXPECT_NE(value(ours, "MASTER_PORT"), "-");
  environment.set("MASTER_PORT", "4711");
  EXPECT_EQ(value(plan_of(environment), "MASTER_PORT"), "4711");
  environment.set("MASTER_ADDR", "localhost");
  EXPECT_FALSE(plan_of(environment).find("MASTER_ADDR")) << "the ranks of each node would meet alone";
  Settings settings{.address = {"node001", Source::kEnvironment}};
  EXPECT_EQ(value(plan_of(mpirun_rank(2), settings), "MASTER_ADDR"), "node001");
  settings.address = {"%h-ib0", Source::kEnvironment};
  EXPECT_FALSE(plan_of(mpirun_rank(2), settings).find("MASTER_ADDR"));
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
  EXPECT_TRUE(refused("3", "2", "2")) << "no such local rank";
  EXPECT_TRUE(refused("3", "1", "5")) << "more on a node than there are";
  EXPECT_FALSE(refused("3", "1", "2")) << "the control";
}

// mpirun of Open MPI 5 with --rank-by span, --map-by core or --oversubscribe.
TEST(MpirunFacts, LocalRanksNeedNotFollowTheRanks) {
  const auto local_rank = [](const char* rank, const char* local, const char* size) {
    return value(plan_of(with(mpirun_rank(3), {{"OMPI_COMM_WORLD_RANK", rank},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", local},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", size}})),
                 "LOCAL_RANK");
  };
  EXPECT_EQ(local_rank("1", "2", "3"), "2");
  EXPECT_EQ(local_rank("3", "0", "2"), "0");
  EXPECT_EQ(local_rank("0", "1", "2"), "1");
  EXPECT_EQ(local_rank("3", "2", "4"), "3") << "one node: in order of rank, as for the other ranks";
}

TEST(MpirunFacts, GpusGoByLocalRankWithAndWithoutAList) {
  MpirunContext around;
  EXPECT_FALSE(plan_of(mpirun_rank(3), {}, around).find("BOOTSTRAP_GPU")) << "there are none";
  around.gpus = 2;
  const auto without = plan_of(mpirun_rank(3), {}, around);
  EXPECT_EQ(value(without, "BOOTSTRAP_GPU"), "1");
  EXPECT_FALSE(without.find("CUDA_VISIBLE_DEVICES"));
  auto environment = with(mpirun_rank(3), {{"CUDA_VISIBLE_DEVICES", "4,6"}});
  EXPECT_EQ(value(plan_of(environment, {}, around), "BOOTSTRAP_GPU"), "1");
  EXPECT_EQ(value(plan_of(environment, {}, around), "CUDA_VISIBLE_DEVICES"), "4,6");
  environment.set("CUDA_VISIBLE_DEVICES", "");
  EXPECT_FALSE(plan_of(environment, {}, around).find("BOOTSTRAP_GPU")) << "a list hides the GPUs";
  around.gpus = 1;
  EXPECT_FALSE(plan_of(mpirun_rank(3), {}, around).find("BOOTSTRAP_GPU")) << "two ranks, and one GPU";
  Settings settings{.gpu_share = {true, Source::kEnvironment}};
  EXPECT_EQ(value(plan_of(mpirun_rank(3), settings, around), "BOOTSTRAP_GPU"), "0");
  settings = {};
  settings.gpu = {GpuMode::kNarrow, Source::kEnvironment};
  around.gpus = 2;
  const auto narrow = plan_of(mpirun_rank(3), settings, around);
  EXPECT_EQ(value(narrow, "CUDA_VISIBLE_DEVICES"), "1");
}

TEST(MpirunFacts, ReplacesAnOuterStepsValuesAndKeepsTheUsers) {
  const auto plan = plan_of(two_by_two(0));
  auto environment = applied(plan, mpirun_rank(3));
  EXPECT_EQ(value(plan_of(environment), "RANK"), "3") << "RANK=0 was the outer step's";
  EXPECT_FALSE(plan_of(environment).find("MASTER_ADDR")) << "so was this";
  environment = mpirun_rank_on_one_node(3);
  environment.set("MASTER_PORT", "4711");
  EXPECT_EQ(value(plan_of(environment), "MASTER_PORT"), "4711");
}

TEST(MpirunFacts, TheServerMustBeThisMpiruns) {
  auto environment = mpirun_rank(3);
  environment.set("PMIX_SERVER_URI41", "795672576.1;tcp4://127.0.0.1:59741");
  const auto server = succeeded(check_pmix_environment(environment, mpirun_id("795672577"), 3));
  EXPECT_EQ(server->port, 59741);
  EXPECT_FALSE(check_pmix_environment(environment, mpirun_id("795672578"), 3));
  EXPECT_FALSE(check_pmix_environment(environment, mpirun_id("795672577"), 2));
  EXPECT_FALSE(check_pmix_environment(environment, StepId{12141, 1, 0}, 3));
}

TEST(MpirunFacts, TheCommandSeesWhatWasSet) {
  MpirunContext around;
  around.gpus = 4;
  for (const auto& environment : {mpirun_rank(3), mpirun_rank_on_one_node(3)}) {
    const auto task = succeeded(read_own_plan(applied(plan_of(environment, {}, around), environment), around));
    EXPECT_TRUE(task->is_set);
    EXPECT_TRUE(task->differences.empty()) << task->differences.front();
  }
}

TEST(Decision, IsReadAsItWasWritten) {
  const StepId id{.job = 12, .step = 3};
  for (const auto set_up : {SetUp::kNothing, SetUp::kTorchrun, SetUp::kWorld, SetUp::kAllSettings}) {
    for (const auto asked : {Asked::kUnasked, Asked::kWeakly, Asked::kStrongly}) {
      const Decision decision{.set_up = set_up,
                              .asked = asked,
                              .is_verbose = true,
                              .is_observed = false,
                              .salt = 0xfedcba9876543210U,
                              .unusable_master = "nowhere.example",
                              .endpoint = {"port=auto", "master_addr=%h-ib0"},
                              .reason = "a; b; c"};
      EXPECT_EQ(read_decision(write_decision(id, decision), id), decision);
      EXPECT_EQ(asks_strongly(write_decision(id, decision)), asked == Asked::kStrongly);
      EXPECT_EQ(read_set_up(cat({write_set_up(set_up), " option:port=2000"})), set_up);
    }
  }
  Decision observed;
  observed.is_observed = true;
  EXPECT_EQ(read_decision(write_decision(id, observed), id), observed);
}

// The reason goes into slurmd's log and to the user's terminal.
TEST(Decision, HoldsPrintableTextAlone) {
  const StepId id{.job = 12, .step = 3};
  Decision decision;
  decision.reason = "\xc3\xa9.py is\na Python script";
  const auto read = read_decision(write_decision(id, decision), id);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->reason, "??.py is?a Python script");
  decision.reason = std::string(5000, 'x');
  EXPECT_TRUE(read_decision(write_decision(id, decision), id));
  for (const auto* text : {"5\t12.3\t0\t0\t1\t0\t\t0\t\ta\nb\t", "5\t12.3\t0\t0\t1\t0\t\t0\t\t\x1b[31m\t",
                           "5\t12.3\t2\t0\t0\t0\ta b\t0\t\t\t"}) {
    EXPECT_FALSE(read_decision(text, id)) << text;
  }
  EXPECT_FALSE(read_decision("5\t12.3\t0\t0\t1\t0\t\t0\t\t" + std::string(5000, 'x') + "\t", id));
}

TEST(Decision, OfAnotherStepOrVersionIsNone) {
  const auto text = write_decision({.job = 12, .step = 3}, Decision{});
  EXPECT_FALSE(read_decision(text, {.job = 12, .step = 4}));
  EXPECT_FALSE(read_decision(text, {.job = 13, .step = 3}));
  const auto of_async = write_decision({.job = 12, .step = kPendingStep}, {});
  EXPECT_TRUE(read_decision(of_async, {.job = 12, .step = 3}));
  EXPECT_FALSE(read_decision(of_async, {.job = 13, .step = 3}));
  EXPECT_FALSE(read_decision("1" + text.substr(1), {.job = 12, .step = 3}));
  for (const auto* other :
       {"", "\t", "5\t12.3\t2\t0\t0\tzz\t\t0\t\t\t", "5\t12.3\t9\t0\t0\t0\t\t0\t\t\t", "5\t12.3\t2"}) {
    EXPECT_FALSE(read_decision(other, {.job = 12, .step = 3})) << other;
    EXPECT_FALSE(asks_strongly(other)) << other;
  }
  // A later version may add fields behind these.
  EXPECT_TRUE(asks_strongly("5\t12.3\tnew\t2\tmore", "12.3"));
  EXPECT_FALSE(asks_strongly("5\t12.3\tnew\t2\tmore", "12.4"));
  EXPECT_FALSE(asks_strongly("5\t12.3\tnew\t1\tmore", "12.3"));
  EXPECT_EQ(read_set_up(""), SetUp::kAllSettings);
  EXPECT_EQ(read_set_up("option:port=2000"), SetUp::kAllSettings);
}

}  // namespace
}  // namespace bootstrap
