// Values from the network and the ids of a step: interfaces, files and ports; and the set of frameworks as text.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "core/plan/frameworks.h"
#include "core/plan/master_endpoint.h"
#include "core/plan/step_plan.h"
#include "core/util/text.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

StepPlan plan_of(const Environment& environment, const Settings& settings = {}) {
  return *make_step_plan(*read_task_facts(environment), settings);
}

std::string value(const StepPlan& plan, std::string_view name) {
  return plan.find(name) ? effective_value(plan, name) : "-";
}

StepPlan plan_with_routes(Environment environment, std::string_view interface) {
  auto facts = *read_task_facts(environment);
  facts.master_ip = "10.2.0.1";
  facts.routes = {{"eth0", *parse_ip_prefix("10.1.0.0/16"), 0, true},
                  {"ib0", *parse_ip_prefix("10.2.0.0/16"), 0, true}};
  facts.rdma = {{"ib0", "mlx5_0:1"}};
  Settings settings;
  settings.interface = {*parse_interface(interface), Source::kOption};
  settings.frameworks.value = *parse_frameworks("auto");
  return *make_step_plan(facts, settings);
}

void expect_values(const StepPlan& plan, std::initializer_list<std::pair<const char*, std::string>> expected) {
  for (const auto& [name, text] : expected) EXPECT_EQ(value(plan, name), text) << name;
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

TEST(Interface, TheUsersChoiceIsKept) {
  auto environment = with(two_by_two(), {{"NCCL_SOCKET_IFNAME", "eth0"}});
  EXPECT_EQ(value(plan_with_routes(environment, "auto"), "GLOO_SOCKET_IFNAME"), "-");
  const auto named = plan_with_routes(environment, "ib0");
  EXPECT_EQ(value(named, "GLOO_SOCKET_IFNAME"), "ib0");
  EXPECT_EQ(value(named, "NCCL_SOCKET_IFNAME"), "eth0");
}

TEST(InitFile, IsANewNameForEachStepAndRestart) {
  auto environment = with(two_by_two(), {{"USER", "alice"}});
  Settings settings;
  EXPECT_EQ(value(plan_of(environment, settings), "BOOTSTRAP_INIT_FILE"), "-");
  settings.shared_dir = {"/home/%u/.meet", Source::kSite};
  EXPECT_EQ(value(plan_of(environment, settings), "BOOTSTRAP_INIT_FILE"), "-") << "others could know the name";
  const auto name = [&] {
    auto facts = *read_task_facts(environment);
    facts.decision.salt = 0x12ab;
    return value(*make_step_plan(facts, settings), "BOOTSTRAP_INIT_FILE");
  };
  EXPECT_EQ(name(), "/home/alice/.meet/bootstrap-12.0.0-00000000000012ab");
  environment.set("SLURM_RESTART_COUNT", "2");
  EXPECT_EQ(name(), "/home/alice/.meet/bootstrap-12.0.2-00000000000012ab");
  environment.unset("USER");
  EXPECT_EQ(name(), "-");
}

TEST(Threads, AreTheTasksShareOfTheCores) {
  const auto count = [](std::uint32_t cores, std::uint32_t of_node, std::uint32_t asked, std::uint32_t tasks) {
    return thread_count({.gpus = {}, .cores = cores, .cores_of_node = of_node, .cores_asked = asked}, tasks);
  };
  EXPECT_EQ(count(8, 64, 8, 8), 8U);   // --cpus-per-task, bound
  EXPECT_EQ(count(64, 64, 0, 8), 8U);  // not bound: they share the node
  EXPECT_EQ(count(4, 64, 0, 8), 4U);   // bound to fewer than the share
  EXPECT_EQ(count(64, 64, 16, 2), 16U);
  EXPECT_EQ(count(64, 4, 0, 8), 1U);
  EXPECT_EQ(count(0, 0, 0, 2), 0U);  // no source has a number: nothing is set
  GpuView view;
  view.group = {0, 1, 2, 3};
  EXPECT_EQ(thread_count({.gpus = view, .cores = 64, .cores_of_node = 64, .cores_asked = 0}, 1), 16U);
}

TEST(FurtherPorts, AreDifferentAndStayInTheRange) {
  for (const PortRange range : {PortRange{20000, 29999}, PortRange{30000, 30015}}) {
    for (std::uint32_t job = 1; job < 500; ++job) {
      auto environment = with(two_by_two(), {{"SLURM_JOB_ID", std::to_string(job)}});
      const auto facts = *read_task_facts(environment);
      std::set<std::uint16_t> ports{computed_port(facts.id, range)};
      for (std::uint32_t n = 1; n <= 9; ++n) {
        const auto port = further_port(facts, range, n);
        EXPECT_TRUE(port >= range.low && port <= range.high);
        EXPECT_TRUE(ports.insert(port).second) << job << " " << n;
      }
    }
  }
}

TEST(FurtherPorts, AreSlurmsIfItReservedAsMany) {
  auto environment = with(two_by_two(), {{"SLURM_STEP_RESV_PORTS", "12004-12005,12009"}});
  const auto facts = *read_task_facts(environment);
  EXPECT_EQ(further_port(facts, {}, 1), 12005);
  EXPECT_EQ(further_port(facts, {}, 2), 12009);
  EXPECT_GE(further_port(facts, {}, 3), 20000);
}

TEST(FurtherPorts, JaxIsSetUpOnlyWithAPortOfItsOwn) {
  Settings settings;
  EXPECT_TRUE(make_step_plan(*read_task_facts(two_by_two()), settings)->find("JAX_COORDINATOR_PORT"));
  settings.port_range.value = {20000, 20000};
  const auto plan = make_step_plan(*read_task_facts(two_by_two()), settings);
  EXPECT_FALSE(plan->find("JAX_COORDINATOR_PORT")) << "PyTorch has the only one";
  EXPECT_FALSE(plan->find("JAX_COORDINATOR_ADDRESS"));
}

TEST(TaskPorts, AreOfOneTaskEach) {
  Settings settings;
  settings.ports = {3, Source::kOption};
  settings.frameworks.value = *parse_frameworks("auto,tensorflow");
  std::set<std::string> ports;
  for (const Rank rank : {0U, 1U}) {
    const auto plan = plan_of(two_by_two(rank), settings);
    const auto own = value(plan, "BOOTSTRAP_PORTS");
    for (const auto port : split(own, ',')) EXPECT_TRUE(ports.emplace(port).second) << port;
    for (const auto port : plan.worker_ports) EXPECT_TRUE(ports.insert(std::to_string(port)).second) << port;
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
  Settings settings;
  settings.ports = {5, Source::kEnvironment};
  settings.port_range = {{20000, 20012}, Source::kSite};
  const auto refused = make_step_plan(facts, settings);
  ASSERT_FALSE(refused);
  EXPECT_EQ(
      refused.error().message,
      "SLURM_BOOTSTRAP_PORTS=5: 2 tasks on a node need 10 ports, and there are 9; use a lower number, or a larger "
      "--bootstrap-port-range");
  facts.decision = {.set_up = SetUp::kWorld, .asked = Asked::kUnasked, .unusable_master = {}, .reason = {}};
  const auto plan = make_step_plan(facts, settings);
  ASSERT_TRUE(plan);
  EXPECT_EQ(value(*plan, "BOOTSTRAP_PORTS"), "-");
  EXPECT_EQ(plan->warnings.size(), 1U);
  settings.port_range.value = {20000, 20013};
  EXPECT_NE(value(*make_step_plan(facts, settings), "BOOTSTRAP_PORTS"), "-");
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
