// The frameworks' variables agree with the plan in every mode, are set only for their framework, and leave the user's
// values; interfaces, files and ports.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/frameworks.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/util/text.h"
#include "plan_values.h"

namespace bootstrap {
namespace {

// One task on each of two nodes with two GPUs each, as for torchrun.
Environment one_by_two(int rank = 0) {
  auto environment = with(
      two_by_two(2 * rank),
      {{"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", std::to_string(rank)}});
  return environment;
}

Settings with(std::string_view frameworks) { return {.frameworks = {*parse_frameworks(frameworks), Source::kOption}}; }

// The facts of a task whose node has one interface, on which the ranks meet.
StepFacts facts_over_eth0(const Environment& environment) {
  auto facts = *read_task_facts(environment);
  facts.meeting.ours = "10.1.0.1";
  facts.routes = {{"eth0", *parse_ip_prefix("10.1.0.0/16"), 0, true}};
  return facts;
}

std::set<std::string> names(const WholePlan& plan) {
  std::set<std::string> names;
  for (const auto& variable : plan.variables) names.insert(variable.name);
  return names;
}

TEST(Frameworks, TorchrunNeedsNoFlag) {
  const auto plan = plan_of(one_by_two(1));
  expect_values(plan, {{"PET_NNODES", "2"},
                       {"PET_NODE_RANK", "1"},
                       {"PET_NPROC_PER_NODE", "2"},
                       {"PET_RDZV_BACKEND", "static"},
                       {"PET_RDZV_ID", "12.0.0"},
                       {"PET_MASTER_ADDR", value(plan, "MASTER_ADDR")},
                       {"PET_MASTER_PORT", value(plan, "MASTER_PORT")}});
}

TEST(Frameworks, TorchrunIsOneTaskOnEachNode) {
  EXPECT_EQ(value(plan_of(two_by_two()), "PET_NNODES"), "-");
  EXPECT_EQ(value(plan_of(two_by_two(), with("torchrun")), "PET_NNODES"), "-");
}

TEST(Frameworks, TheRendezvousIsTheUsersIfSet) {
  auto environment = with(one_by_two(), {{"MASTER_ADDR", "elsewhere"}, {"MASTER_PORT", "4711"}});
  const auto plan = plan_of(environment);
  expect_values(plan, {{"PET_MASTER_ADDR", "elsewhere"},
                       {"PET_MASTER_PORT", "4711"},
                       {"JAX_COORDINATOR_ADDRESS", "elsewhere:" + value(plan, "JAX_COORDINATOR_PORT")}});
  EXPECT_NE(value(plan, "JAX_COORDINATOR_PORT"), "4711") << "PyTorch may run in the program, too";
  environment.set("MASTER_ADDR", "fd00::7");
  EXPECT_EQ(value(plan_of(environment), "JAX_COORDINATOR_ADDRESS").find("[fd00::7]:"), 0U);
}

TEST(Frameworks, AWorldThatWasNotAskedForGetsNoMoreThanItsRow) {
  auto facts = facts_over_eth0(two_by_two());
  facts.decision = unasked(SetUp::kWorld);
  const auto plan = plan_with_cores(facts, {}, 8, 0);
  const auto expected = split(
      "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR "
      "MASTER_PORT CUDA_DEVICE_ORDER BOOTSTRAP_GPU GLOO_SOCKET_IFNAME SLURM_NTASKS_PER_NODE "
      "JAX_COORDINATOR_PORT SLURM_BOOTSTRAP_SETTINGS SLURM_BOOTSTRAP_STEP SLURM_BOOTSTRAP_EXPORTS",
      ' ');
  EXPECT_EQ(names(plan), std::set<std::string>(expected.begin(), expected.end()));
  EXPECT_TRUE(plan.step.gpus->is_untouched);
  EXPECT_NE(value(plan, "JAX_COORDINATOR_PORT"), value(plan, "MASTER_PORT"));
}

TEST(Frameworks, TorchrunAsTheProgramGetsItsOwnAlone) {
  auto facts = *read_task_facts(one_by_two());
  facts.decision = unasked(SetUp::kTorchrun);
  const auto plan = *make_plan(facts, {});
  for (const auto& variable : plan.variables) {
    EXPECT_TRUE(variable.name.starts_with("PET_") || variable.name.starts_with("SLURM_BOOTSTRAP_")) << variable.name;
  }
  EXPECT_EQ(value(plan, "PET_NNODES"), "2");
  EXPECT_NE(value(plan, "PET_MASTER_PORT"), "-");
}

TEST(Frameworks, ATaskLimitedToOneGpuIsLimitedForAllFrameworks) {
  for (const auto mode : {GpuMode::kFirst, GpuMode::kNarrow}) {
    auto settings = with("all");
    settings.gpu = {mode, Source::kOption};
    const auto plan = plan_of(two_by_two(3), settings);
    EXPECT_EQ(value(plan, "JAX_LOCAL_DEVICE_IDS"), "0");
    EXPECT_EQ(value(plan, "NCCL_TESTS_DEVICE"), "0");
  }
  EXPECT_EQ(value(plan_of(two_by_two(3)), "NCCL_TESTS_DEVICE"), "-");  // nccl-tests' default is right
}

TEST(Frameworks, TfConfigIsTheSameClusterForAll) {
  nlohmann::json clusters[4];
  for (int rank = 0; rank < 4; ++rank) {
    const auto plan = plan_of(two_by_two(rank), with("tensorflow"));
    clusters[rank] = nlohmann::json::parse(value(plan, "TF_CONFIG"));
    EXPECT_EQ(clusters[rank]["task"]["index"], rank);
    EXPECT_EQ(clusters[rank]["task"]["type"], "worker");
    EXPECT_EQ(clusters[rank]["cluster"], clusters[0]["cluster"]);
    const std::string own = clusters[rank]["cluster"]["worker"][static_cast<std::size_t>(rank)];
    ASSERT_EQ(plan.step.ports.workers.size(), 1U);
    EXPECT_EQ(own, (rank < 2 ? "node001:" : "node002:") + std::to_string(plan.step.ports.workers[0].port));
  }
  const std::set<std::string> workers = clusters[0]["cluster"]["worker"];
  EXPECT_EQ(workers.size(), 4U);
}

TEST(Frameworks, TfConfigKeepsZerosAndUnevenTasks) {
  auto environment = with(step_of("gpu[08-10]", "3,1(x2)", 5, "gpu08"), {{"SLURM_STEP_NUM_NODES", "3"}});
  auto settings = with("tensorflow");
  settings.gpu_share = {true, Source::kOption};
  const auto config = nlohmann::json::parse(value(plan_of(environment, settings), "TF_CONFIG"));
  std::vector<std::string> hosts;
  for (const std::string worker : config["cluster"]["worker"]) hosts.push_back(worker.substr(0, worker.find(':')));
  EXPECT_EQ(hosts, (std::vector<std::string>{"gpu08", "gpu08", "gpu08", "gpu09", "gpu10"}));
}

TEST(Frameworks, ATfConfigThatIsTooLongIsReportedAndLeftOut) {
  auto environment = step_of("node[00001-12500]", "8(x12500)", 100000, "node00001");
  environment.unset("SLURM_STEP_GPUS");
  const auto plan = plan_of(environment, with("tensorflow"));
  EXPECT_EQ(value(plan, "TF_CONFIG"), "-");
  EXPECT_NE(only(plan.warnings).find("TF_CONFIG is not set: "), std::string::npos);
}

// Each task of a node has the whole list. A node with fewer tasks leaves it out, too.
TEST(Frameworks, TfConfigIsLeftOutWhereANodeWouldNeedMuchMemory) {
  const auto settings = with("tensorflow");
  const auto facts_of = [](const std::string& tasks, int size, std::uint32_t node) {
    auto environment = step_of("node[001-024]", tasks, size, "node001");
    environment.unset("SLURM_STEP_GPUS");
    auto facts = *read_task_facts(environment);
    facts.is_one_task = false;
    facts.ranks_here = facts.layout.ranks_on(node);
    return facts;
  };
  const auto fits = facts_of("8(x24)", 192, 0);
  const auto fitting = *make_plan(fits, settings);
  ASSERT_TRUE(fitting.find("TF_CONFIG"));
  EXPECT_NE(value(fitting, "TF_CONFIG"), value(*make_plan(fits, settings, 7), "TF_CONFIG"));
  EXPECT_EQ(fitting.step.ports.workers.size(), 8U);
  EXPECT_TRUE(fitting.warnings.empty()) << fitting.warnings.front();
  for (const std::uint32_t node : {0U, 23U}) {
    const auto facts = facts_of("128(x23),1", 23 * 128 + 1, node);
    const auto plan = *make_plan(facts, settings);
    EXPECT_FALSE(plan.find("TF_CONFIG")) << node;
    EXPECT_TRUE(plan.step.ports.workers.empty()) << node;
    EXPECT_EQ(only(plan.warnings),
              "TF_CONFIG is not set: the list of 2945 tasks would be longer than 8192 bytes, the limit with 128 tasks "
              "on a node");
  }
}

TEST(Frameworks, LightningGetsTheStepsOwnNumber) {
  EXPECT_EQ(value(plan_of(two_by_two()), "SLURM_NTASKS_PER_NODE"), "2");
  auto environment = two_by_two();
  environment.set("SLURM_NTASKS_PER_NODE", "4");  // of the job; the step has fewer
  EXPECT_EQ(value(plan_of(environment), "SLURM_NTASKS_PER_NODE"), "2");
  environment.set("SLURM_NTASKS_PER_NODE", "2");
  EXPECT_EQ(value(plan_of(environment), "SLURM_NTASKS_PER_NODE"), "-");  // Slurm's value is right
  auto uneven = step_of("node[001-002]", "2,1", 3, "node001");
  EXPECT_EQ(value(plan_of(uneven), "SLURM_NTASKS_PER_NODE"), "-");
}

TEST(Frameworks, ListsAllAndNone) {
  const auto base = names(plan_of(two_by_two(), with("none")));
  EXPECT_EQ(base.count("MASTER_PORT"), 1U);
  EXPECT_EQ(base.count("JAX_COORDINATOR_ADDRESS"), 0U);
  const auto jax = names(plan_of(two_by_two(), with("jax")));
  EXPECT_EQ(jax.size(), base.size() + 3);
  const auto all = names(plan_of(two_by_two(), with("all")));
  for (const auto* name : {"TF_CONFIG", "JAX_LOCAL_DEVICE_IDS"}) {
    EXPECT_EQ(all.count(name), 1U) << name;
  }
  EXPECT_EQ(names(plan_of(two_by_two())).count("TF_CONFIG"), 0U);
}

TEST(Frameworks, AtMostFortyVariablesByDefaultAtAnySize) {
  auto environment = one_by_two();
  environment.set("SLURM_STEP_GPUS", "0");  // torchrun's shape has most variables
  environment.set("CUDA_VISIBLE_DEVICES", "GPU-11111111-2222-3333-4444-555555555555");
  auto facts = facts_over_eth0(environment);
  const Settings settings;
  const auto plan = plan_with_cores(facts, settings, 8, 8);
  EXPECT_EQ(names(plan).count("PET_NNODES") + names(plan).count("OMP_NUM_THREADS"), 2U);
  for (const auto& any : {plan, plan_of(step_of("node[00001-12500]", "8(x12500)", 100000, "node00001"))}) {
    std::size_t bytes = 0;
    for (const auto& variable : any.variables) bytes += variable.name.size() + variable.value.size() + 2;
    EXPECT_LE(any.variables.size(), 40U);
    EXPECT_LE(bytes, 4096U);
  }
}

TEST(Frameworks, TheRecordOfATaskIsLastAndNamesAllOtherVariables) {
  const auto facts = *read_task_facts(two_by_two());
  const auto plan = plan_with_cores(facts, {}, 8, 8);
  ASSERT_EQ(plan.variables.back().name, kExportsVariable);
  const auto& record = plan.variables.back().value;
  EXPECT_EQ(record.find(kExportsVariable), std::string::npos) << record;
  for (const auto& variable : plan.variables) {
    if (variable.name == kExportsVariable) continue;
    EXPECT_NE((',' + record).find(',' + variable.name + ':'), std::string::npos) << variable.name;
  }
  EXPECT_NE(record.find("OMP_NUM_THREADS:"), std::string::npos);
}

TEST(Frameworks, EveryVariableIsKeptWhereTheUserSetIt) {
  for (const auto& row : framework_variables()) {
    if (row.name == kTasksPerNodeVariable) continue;  // Slurm's
    auto environment =
        with(row.framework == Framework::kTorchrun ? one_by_two() : two_by_two(),
             {{"SLURM_MPI_TYPE", row.framework == Framework::kNvshmem ? "pmix" : "none"}, {row.name, "mine"}});
    const auto plan = plan_of(environment, with("all"));
    const auto set = value(plan, row.name);
    EXPECT_TRUE(set == "mine" || set == "-") << row.name << "=" << set;
  }
}

TEST(Frameworks, AnotherStepsValuesAreReplacedAndRemoved) {
  const auto outer = two_by_two(3);
  auto inner = with(applied(plan_of(outer, with("all")), outer),
                    {{"SLURM_STEP_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURMD_NODENAME", "node001"}});
  const auto again = plan_of(inner, with("jax"));
  EXPECT_EQ(value(again, "JAX_COORDINATOR_ADDRESS"), "node001:" + value(again, "JAX_COORDINATOR_PORT"));
  EXPECT_NE(std::find(again.step.removals.begin(), again.step.removals.end(), "TF_CONFIG"), again.step.removals.end());
}

TEST(Frameworks, TheTaskItselfSeesWhatSlurmstepdSet) {
  const auto environment = two_by_two(1);
  auto facts = facts_over_eth0(environment);
  const auto plan = plan_with_cores(facts, {}, 6, 16, 1);
  const auto task = succeeded(read_own_plan(applied(plan, environment)));
  EXPECT_TRUE(task->differences.empty()) << task->differences.front();
  EXPECT_EQ(value(task->task.variables, "OMP_NUM_THREADS"), "6");
  EXPECT_EQ(value(task->task.variables, "GLOO_SOCKET_IFNAME"), "eth0");
  EXPECT_TRUE(task->step.removals.empty()) << task->step.removals.front();
}

WholePlan plan_with_routes(Environment environment, std::string_view interface) {
  auto facts = facts_over_eth0(environment);
  facts.meeting.ours = "10.2.0.1";
  facts.routes.push_back({"ib0", *parse_ip_prefix("10.2.0.0/16"), 0, true});
  facts.rdma = {{"ib0", "mlx5_0:1"}};
  Settings settings{.interface = {*parse_interface(interface), Source::kOption}};
  settings.frameworks.value = *parse_frameworks("auto");
  return *make_plan(facts, settings);
}

TEST(Interface, IsTheSameForAllFrameworks) {
  for (const auto* choice : {"auto", "ib0", "10.2.0.0/16"}) {
    const auto plan = plan_with_routes(two_by_two(), choice);
    expect_values(plan, {{"GLOO_SOCKET_IFNAME", "ib0"},
                         {"NCCL_SOCKET_IFNAME", "=ib0"},
                         {"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "=ib0"},
                         {"UCX_NET_DEVICES", "mlx5_0:1,ib0"}});
  }
  EXPECT_EQ(value(plan_with_routes(two_by_two(), "eth0"), "UCX_NET_DEVICES"), "eth0");
  EXPECT_EQ(value(plan_with_routes(two_by_two(), "off"), "GLOO_SOCKET_IFNAME"), "-");
}

TEST(Interface, IsSetByDefaultOnlyForGloo) {
  const auto plan = plan_with_routes(two_by_two(), "gloo");
  expect_values(plan, {{"GLOO_SOCKET_IFNAME", "ib0"}, {"NCCL_SOCKET_IFNAME", "-"}, {"UCX_NET_DEVICES", "-"}});
}

TEST(Interface, TheUsersChoiceOfAVariableIsKept) {
  const auto environment = with(two_by_two(), {{"NCCL_SOCKET_IFNAME", "eth0"}});
  expect_values(plan_with_routes(environment, "auto"), {{"GLOO_SOCKET_IFNAME", "ib0"}, {"NCCL_SOCKET_IFNAME", "eth0"}});
  EXPECT_EQ(value(plan_with_routes(with(two_by_two(), {{"GLOO_SOCKET_IFNAME", "eth0"}}), "gloo"), "GLOO_SOCKET_IFNAME"),
            "eth0");
}

TEST(Interface, HasAWarningIfANodeLacksIt) {
  for (const auto asked : {Asked::kUnasked, Asked::kWeakly}) {
    for (const auto& [variable, text] : {std::pair{"GLOO_SOCKET_IFNAME", "^lo,docker"}, {"NCCL_SOCKET_IFNAME", "ib"}}) {
      auto facts = facts_over_eth0(with(two_by_two(), {{variable, text}}));
      facts.interfaces = {"eth0"};
      facts.decision.asked = asked;
      const auto plan = *make_plan(facts, {});
      const bool is_kept = asked == Asked::kUnasked;
      const auto ours = text[0] == '^' ? "eth0" : "=eth0";
      EXPECT_EQ(value(plan, variable), !is_kept ? ours : text[0] == '^' ? text : "-");
      const auto said = is_kept ? "stays as you set it" : std::string("is replaced by ") + ours;
      EXPECT_NE(plan.step.node_warnings.at(0).find(said), std::string::npos) << plan.step.node_warnings.front();
    }
  }
}

TEST(InitFile, IsANewNameForEachStepAndRestart) {
  auto environment = with(two_by_two(), {{"USER", "alice"}});
  Settings settings;
  EXPECT_EQ(value(plan_of(environment, settings), "BOOTSTRAP_INIT_FILE"), "-");
  settings.shared_dir = {"/home/%u/.meet", Source::kSite};
  EXPECT_EQ(value(plan_of(environment, settings), "BOOTSTRAP_INIT_FILE"), "-") << "other users could guess the name";
  const auto name = [&] {
    auto facts = *read_task_facts(environment);
    facts.decision.salt = 0x12ab;
    return value(*make_plan(facts, settings), "BOOTSTRAP_INIT_FILE");
  };
  EXPECT_EQ(name(), "/home/alice/.meet/bootstrap-12.0.0-00000000000012ab");
  environment.set("SLURM_RESTART_COUNT", "2");
  EXPECT_EQ(name(), "/home/alice/.meet/bootstrap-12.0.2-00000000000012ab");
  environment.unset("USER");
  EXPECT_EQ(name(), "-");
}

TEST(Threads, AreTheShareOfTheTask) {
  const auto count = [](std::uint32_t cores, std::uint32_t of_node, std::uint32_t asked, std::uint32_t tasks) {
    return thread_count({.gpus = {}, .cores = cores, .cores_of_node = of_node, .cores_asked = asked}, tasks);
  };
  EXPECT_EQ(count(8, 64, 8, 8), 8U);   // --cpus-per-task, bound
  EXPECT_EQ(count(64, 64, 0, 8), 8U);  // not bound: they share the node
  EXPECT_EQ(count(4, 64, 0, 8), 4U);   // bound to fewer than the share
  EXPECT_EQ(count(64, 64, 16, 2), 16U);
  EXPECT_EQ(count(64, 4, 0, 8), 1U);
  EXPECT_EQ(count(0, 0, 0, 2), 0U);  // no source has a number: nothing is set
  const NodeGpus gpus;
  TaskFacts task{.gpus = &gpus, .cores = 64, .cores_of_node = 64};
  task.view.group = {0, 1, 2, 3};
  EXPECT_EQ(thread_count(task, 1), 16U);
}

TEST(FurtherPorts, JaxIsSetUpOnlyWithAPortOfItsOwn) {
  Settings settings;
  EXPECT_TRUE(make_plan(*read_task_facts(two_by_two()), settings)->find("JAX_COORDINATOR_PORT"));
  settings.port_range.value = {20000, 20000};
  const auto plan = make_plan(*read_task_facts(two_by_two()), settings);
  EXPECT_FALSE(plan->find("JAX_COORDINATOR_PORT")) << "PyTorch has the only one";
  EXPECT_FALSE(plan->find("JAX_COORDINATOR_ADDRESS"));
}

TEST(TaskPorts, AreOfOneTaskEach) {
  Settings settings{.ports = {3, Source::kOption}};
  settings.frameworks.value = *parse_frameworks("auto,tensorflow");
  std::set<std::string> ports;
  for (const int rank : {0, 1}) {
    const auto plan = plan_of(two_by_two(rank), settings);
    const auto own = value(plan, "BOOTSTRAP_PORTS");
    for (const auto port : split(own, ',')) EXPECT_TRUE(ports.emplace(port).second) << port;
    for (const auto& worker : plan.step.ports.workers) EXPECT_TRUE(ports.insert(std::to_string(worker.port)).second);
    if (rank != 0) continue;
    for (const auto* other : {"MASTER_PORT", "JAX_COORDINATOR_PORT"})
      EXPECT_TRUE(ports.insert(value(plan, other)).second);
  }
  EXPECT_EQ(ports.size(), 2 * 3 + 2 + 2U);
  settings.ports = {};
  EXPECT_EQ(value(plan_of(two_by_two(), settings), "BOOTSTRAP_PORTS"), "-");
}

TEST(TaskPorts, RefuseOnlyAStepThatAsksOnItsOwnLine) {
  auto facts = *read_task_facts(two_by_two());
  Settings settings{.ports = {5, Source::kEnvironment}};
  settings.port_range = {{20000, 20012}, Source::kSite};
  EXPECT_EQ(
      error_of(make_plan(facts, settings)).message,
      "SLURM_BOOTSTRAP_PORTS=5: 2 tasks on a node need 10 ports, and there are 9; use a lower number, or a larger "
      "--bootstrap-port-range");
  facts.decision = unasked(SetUp::kWorld);
  const auto plan = succeeded(make_plan(facts, settings));
  EXPECT_EQ(value(*plan, "BOOTSTRAP_PORTS"), "-");
  EXPECT_EQ(plan->warnings.size(), 1U);
  settings.port_range.value = {20000, 20013};
  EXPECT_NE(value(*make_plan(facts, settings), "BOOTSTRAP_PORTS"), "-");
}

TEST(FrameworkChoice, IsReadAndWrittenTheSame) {
  for (const auto* text : {"auto", "all", "none", "tensorflow", "torchrun,jax", "nvshmem,nccl-tests,openmp",
                           "auto,tensorflow", "auto,tensorflow,jax"}) {
    EXPECT_EQ(write_frameworks(*parse_frameworks(text)), text);
  }
  for (const auto* text : {"", "jax,", "JAX", "auto,auto", "auto,", "caffe", " jax"})
    EXPECT_FALSE(parse_frameworks(text)) << text;
}

}  // namespace
}  // namespace bootstrap
