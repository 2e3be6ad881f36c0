// Plans: scope, values, the user's values, and leftovers of outer steps.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/util/text.h"
#include "plan_values.h"

namespace bootstrap {
namespace {

TEST(StepPlan, GivesEachTaskItsValues) {
  const Settings settings{.frameworks = {*parse_frameworks("none")}};
  const auto plan = plan_of(two_by_two(3), settings);
  for (const auto text :
       split("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 NODE_RANK=1 GROUP_RANK=1 GROUP_WORLD_SIZE=2 "
             "MASTER_ADDR=node001 MASTER_PORT=20444 CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 "
             "BOOTSTRAP_GPU=1 SLURM_BOOTSTRAP_STEP=12.0.0",
             ' ')) {
    const auto& planned = variable(plan, text.substr(0, text.find('=')));
    EXPECT_EQ(planned.name + "=" + planned.value, text);
  }
  EXPECT_EQ(plan.variables.size(), 14U);  // and SLURM_BOOTSTRAP_EXPORTS
  EXPECT_TRUE(plan.step.removals.empty());
}

TEST(StepPlan, ValuesOfAllLocalTasks) {
  const auto facts =
      read_facts(two_by_two(), {12, 0, 0},
                 {.host = "node002", .ranks = {2, 3}, .local_id = {}, .component_job = {}, .component_size = {}});
  const auto first = *make_plan(*facts, {}, 0);
  const auto second = *make_plan(*facts, {}, 1);
  EXPECT_EQ(value(first, "RANK") + value(second, "RANK") + value(second, "NODE_RANK"), "231");
  EXPECT_NE(value(first, "SLURM_BOOTSTRAP_EXPORTS"), value(second, "SLURM_BOOTSTRAP_EXPORTS"));
}

TEST(StepPlan, TheUsersValueIsKept) {
  auto environment = with(two_by_two(), {{"MASTER_PORT", "29500"}});
  const auto plan = plan_of(environment);
  EXPECT_EQ(variable(plan, "MASTER_PORT").action, Action::kKept);
  EXPECT_EQ(value(plan, "MASTER_PORT"), "29500");
  EXPECT_EQ(plan.port(), 29500);  // rank 0 will listen there
  EXPECT_EQ(applied(plan, environment).get("MASTER_PORT"), "29500");
}

TEST(StepPlan, AValueThatCannotBeRightIsReplacedWithAWarning) {
  auto environment = two_by_two();
  EXPECT_TRUE(plan_of(environment).warnings.empty());
  environment.set("MASTER_PORT", "29500");
  environment.set("WORLD_SIZE", "4");
  EXPECT_TRUE(plan_of(environment).warnings.empty());  // the user may choose it, and it is right
  environment.set("RANK", "0");
  environment.set("WORLD_SIZE", "1");
  const auto warning = only(plan_of(environment).warnings);
  EXPECT_EQ(warning.find("replaced WORLD_SIZE=\"1\" (this step has 4) from the environment of srun"), 0U) << warning;
  EXPECT_EQ(value(plan_of(environment), "WORLD_SIZE"), "4");
  EXPECT_NE(warning.find("unset it before srun"), std::string::npos) << warning;
  environment.set("GROUP_WORLD_SIZE", "9");
  EXPECT_NE(plan_of(environment).warnings[0].find("unset them before srun"), std::string::npos);
  auto second = with(two_by_two(3), {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"NODE_RANK", "1"}});
  EXPECT_EQ(value(plan_of(second), "RANK"), "3");
  EXPECT_EQ(value(plan_of(second), "LOCAL_RANK"), "1");
  EXPECT_EQ(variable(plan_of(second), "NODE_RANK").action, Action::kKept);
}

TEST(StepPlan, AMasterAddressThatLeadsNowhereIsReplaced) {
  const auto address = [](const std::string& users, const std::string& unusable = {}) {
    auto facts = *read_task_facts(with(two_by_two(), {{"MASTER_ADDR", users}}));
    facts.decision.unusable_master = unusable;
    return value(*make_plan(facts, {}), "MASTER_ADDR");
  };
  for (const auto* wrong : {"localhost", "127.0.0.1", "::1", "0.0.0.0", "node002", "node002.cluster"}) {
    EXPECT_EQ(address(wrong), "node001") << wrong;
  }
  for (const auto* right : {"node001", "node001.cluster", "node001-ib0", "10.20.1.1", "store.example"}) {
    EXPECT_EQ(address(right), right);
  }
  EXPECT_EQ(address("gone.example", "gone.example"), "node001") << "srun could not find it";
  auto one_node = with(step_of("node001", "2", 2, "node001"), {{"MASTER_ADDR", "localhost"}});
  EXPECT_EQ(value(plan_of(one_node), "MASTER_ADDR"), "localhost");
  one_node.set("MASTER_ADDR", "gone.example");
  auto facts = *read_task_facts(one_node);
  facts.decision.unusable_master = "gone.example";
  EXPECT_EQ(value(*make_plan(facts, {}), "MASTER_ADDR"), "node001");
}

TEST(StepPlan, AMasterAddressWhereAServerOfTheUsersMayBeStaysInAStepThatDidNotAsk) {
  const auto plan_with = [](const std::string& value) {
    auto facts = *read_task_facts(with(two_by_two(), {{"MASTER_ADDR", value}}));
    facts.decision = unasked(SetUp::kWorld);
    return *make_plan(facts, {});
  };
  const auto other = plan_with("node002");
  EXPECT_EQ(value(other, "MASTER_ADDR"), "node002");
  const auto warning = only(other.warnings);
  EXPECT_EQ(warning.find("MASTER_ADDR=\"node002\" stays as you set it, but rank 0 is on node001; "), 0U) << warning;
  for (const auto* own : {"node001", "10.20.1.1", "store.example"}) EXPECT_TRUE(plan_with(own).warnings.empty()) << own;
  EXPECT_EQ(value(plan_with("localhost"), "MASTER_ADDR"), "node001") << "the ranks of each node would meet alone";
}

// A step on one node of a job of two.
StepFacts second_node(std::string_view users, SetUp set_up = SetUp::kWorld) {
  auto environment = with(step_of("node002", "2", 2, "node002"),
                          {{"MASTER_ADDR", std::string(users)}, {"SLURM_JOB_NODELIST", "node[001-002]"}});
  auto facts = *read_task_facts(environment);
  if (set_up != SetUp::kAllSettings) facts.decision = unasked(set_up);
  return facts;
}

TEST(StepPlan, AMasterAddressOutsideOfTheStepIsReportedAndReplacedWhereTheStepAsks) {
  const auto reported = *make_plan(second_node("node001"), {});
  EXPECT_EQ(value(reported, "MASTER_ADDR"), "node001");
  EXPECT_EQ(only(reported.warnings),
            "MASTER_ADDR=\"node001\" stays as you set it, but this step has no task on that node, and rank 0 is on "
            "node002; if the ranks are to meet on node002, unset it before srun, or use --bootstrap=on");
  EXPECT_EQ(value(*make_plan(second_node("node001", SetUp::kAllSettings), {}), "MASTER_ADDR"), "node002");
  for (const auto* right : {"node002", "node002.cluster", "10.20.1.1", "store.example"}) {
    EXPECT_TRUE(make_plan(second_node(right), {})->warnings.empty()) << right;
  }
  auto elsewhere = second_node("10.20.1.1");
  elsewhere.is_users_master_elsewhere = true;
  const auto warning = only(make_plan(elsewhere, {})->warnings);
  EXPECT_EQ(warning.find("MASTER_ADDR=\"10.20.1.1\" stays as you set it, but it is no"), 0U);
  elsewhere.decision.asked = Asked::kStrongly;
  EXPECT_EQ(make_plan(elsewhere, {})->warnings.size(), 1U) << "it stays in a step that asks, too";
}

TEST(StepPlan, OurOwnAddressExportedAgainIsNoServerOfTheUsers) {
  auto environment = with(two_by_two(), {{"MASTER_ADDR", "node001"}, {"MASTER_PORT", "29500"}});
  const auto ours = *make_plan(*read_task_facts(environment), {});
  ASSERT_TRUE(ours.step.ports.master);
  EXPECT_EQ(ours.step.ports.master->port, 29500);
  environment.set("MASTER_ADDR", "store.example");
  EXPECT_FALSE(make_plan(*read_task_facts(environment), {})->step.ports.master);
}

TEST(StepPlan, WhereNamesDoNotResolveTheAddressOfTheNodeCounts) {
  auto facts = *read_task_facts(two_by_two());
  facts.decision = unasked(SetUp::kWorld);
  facts.meeting = {"10.20.1.1", {}, "10.20.1.1"};
  const auto plan = *make_plan(facts, {});
  EXPECT_EQ(value(plan, "MASTER_ADDR"), "10.20.1.1");
  EXPECT_EQ(plan.step.master.address_from, "NodeAddr of node001, a name that does not resolve");
  EXPECT_EQ(value(plan, "JAX_COORDINATOR_ADDRESS").find("10.20.1.1:"), 0U);
  Settings settings{.address = {"%a-ib0", Source::kOption}};
  EXPECT_EQ(value(*make_plan(facts, settings), "MASTER_ADDR"), "10.20.1.1-ib0");
  settings.address = {"%h-ib0", Source::kSite};
  EXPECT_EQ(value(*make_plan(facts, settings), "MASTER_ADDR"), "node001-ib0") << "the site knows another name";
  settings.address = {"%a", Source::kOption};
  facts.meeting = {};
  EXPECT_EQ(value(*make_plan(facts, settings), "MASTER_ADDR"), "-") << "srun alone knows it";
}

TEST(StepPlan, PortsAreSalted) {
  auto facts = *read_task_facts(two_by_two());
  facts.decision.salt = 0x1234567890abcdefU;
  const auto salted = make_plan(facts, {})->step.master.port;
  facts.decision.salt = 0xfedcba0987654321U;
  EXPECT_NE(make_plan(facts, {})->step.master.port, salted);
}

TEST(StepPlan, AnOptionWinsOverAVariable) {
  auto environment = with(two_by_two(), {{"MASTER_PORT", "29500"}, {"MASTER_ADDR", "elsewhere"}});
  Settings settings{.port = {2345, Source::kOption}};
  settings.address = {"%h-ib0", Source::kSite};
  const auto plan = plan_of(environment, settings);
  EXPECT_EQ(value(plan, "MASTER_PORT"), "2345");
  EXPECT_EQ(variable(plan, "MASTER_PORT").action, Action::kReplaced);
  EXPECT_EQ(value(plan, "MASTER_ADDR"), "elsewhere");  // the user's value wins over the site's
}

TEST(StepPlan, LeftoversOfAnOuterStepAreReplaced) {
  auto outer = two_by_two(3);
  const auto inherited = applied(plan_of(outer), outer);
  auto inner = with(inherited, {{"SLURM_STEP_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURMD_NODENAME", "node001"}});
  const auto plan = plan_of(inner);
  EXPECT_EQ(value(plan, "RANK"), "0");
  EXPECT_EQ(value(plan, "MASTER_PORT"), "20445");
  EXPECT_EQ(variable(plan, "RANK").action, Action::kReplaced);
  EXPECT_EQ(variable(plan, "RANK").why, "left over from step 12.0");
}

TEST(StepPlan, AValueThatTheUserChangedInTheOuterStepIsKept) {
  auto outer = two_by_two(3);
  auto inner = with(applied(plan_of(outer), outer), {{"SLURM_STEP_ID", "1"}, {"MASTER_PORT", "5555"}});
  const auto plan = plan_of(inner);
  EXPECT_EQ(value(plan, "MASTER_PORT"), "5555");
  EXPECT_EQ(variable(plan, "MASTER_PORT").action, Action::kKept);
  // It is also kept in a third step inside the second.
  auto innermost = with(applied(plan, inner), {{"SLURM_STEP_ID", "2"}});
  EXPECT_EQ(value(plan_of(innermost), "MASTER_PORT"), "5555");
  EXPECT_EQ(variable(plan_of(innermost), "RANK").action, Action::kReplaced);
}

TEST(StepPlan, AnInactiveStepInsideAnActiveOneSeesNoLeftovers) {
  auto outer = two_by_two(3);
  const Settings settings{.port = {2345, Source::kOption}};
  auto inner = with(applied(plan_of(outer, settings), outer),
                    {{"SLURM_BOOTSTRAP_LAYOUT", "12.1/block"}, {"SRUN_EXPORT_ENV", std::string(kExportValue)}});
  inner.unset("SLURM_NTASKS_PER_NODE");  // srun removes it, since it reads it as an option
  for (const auto& name : inherited_to_unset(inner)) inner.unset(name);
  EXPECT_EQ(inner, outer);
}

TEST(StepPlan, EmptyCountsAsNotSet) {
  auto environment = with(two_by_two(), {{"MASTER_ADDR", ""}});
  EXPECT_EQ(value(plan_of(environment), "MASTER_ADDR"), "node001");
}

TEST(StepPlan, ThePortIsClaimedOnceAndOnlyIfItIsOurs) {
  EXPECT_EQ(plan_of(two_by_two(0)).port(), 20444);
  EXPECT_EQ(plan_of(two_by_two(2)).port(), std::nullopt);
  auto elsewhere = with(two_by_two(0), {{"MASTER_ADDR", "store.example"}});
  EXPECT_EQ(plan_of(elsewhere).port(), std::nullopt);
  const Settings settings{.claim = {false, Source::kOption}};
  EXPECT_EQ(plan_of(two_by_two(0), settings).port(), std::nullopt);
  auto nonsense = with(two_by_two(0), {{"MASTER_PORT", "http"}});
  EXPECT_EQ(plan_of(nonsense).port(), 20444) << "replaced: it is no port";
}

TEST(StepPlan, TasksDoNotKeepALongLayout) {
  auto environment = step_of("n[1-600]", "1(x600)", 600, "n600");
  std::string map;
  for (int node = 599; node >= 0; --node) map += (map.empty() ? "" : ",") + std::to_string(node);
  environment.set("SLURM_BOOTSTRAP_LAYOUT", "12.0/map:" + map);
  const auto plan = plan_of(environment);
  EXPECT_NE(std::find(plan.step.removals.begin(), plan.step.removals.end(), "SLURM_BOOTSTRAP_LAYOUT"),
            plan.step.removals.end());
  EXPECT_EQ(value(plan, "MASTER_ADDR"), "n600");
}

TEST(StepPlan, NoTaskKeepsAnInternalVariableThatIsEmpty) {
  auto environment = two_by_two();
  for (const auto* name : {"SLURM_BOOTSTRAP_DECISION", "SLURM_BOOTSTRAP_FAILURE", "SLURM_BOOTSTRAP_LAYOUT"}) {
    environment.set(name, "");
  }
  EXPECT_EQ(inherited_to_unset(environment).size(), 3U);
  EXPECT_EQ(plan_of(environment).step.removals.size(), 3U);
}

TEST(TaskPlan, TheVerdictGivesTheReason) {
  const auto before = two_by_two(1);
  EXPECT_EQ(read_own_plan(before)->verdict,
            "NOT SET UP: no plugin set up this step (srun -v says why, if srun --help has --bootstrap); use "
            "--bootstrap=on, or without the plugin start slurm-bootstrap run PROGRAM");
  const auto verdict_of = [&](bootstrap::SetUp set_up, const Settings& settings, bool is_preloaded = false) {
    auto facts = *read_task_facts(before);
    facts.decision.set_up = set_up;
    facts.is_preloaded = is_preloaded;
    const auto task = read_own_plan(applied(*make_plan(facts, settings), before));
    EXPECT_EQ(task->facts.is_preloaded, is_preloaded);
    EXPECT_EQ(write_settings(task->settings), write_settings(settings));
    return task->verdict;
  };
  Settings on{.mode = {Mode::kOn, Source::kEnvironment}};
  EXPECT_EQ(verdict_of(SetUp::kAllSettings, on), "SET UP: SLURM_BOOTSTRAP=on asks for it");
  on.port = {25000, Source::kOption};
  EXPECT_EQ(verdict_of(SetUp::kAllSettings, on), "SET UP: --bootstrap-port=25000 asks for it");
  EXPECT_EQ(verdict_of(SetUp::kAllSettings, {}, true), "SET UP: the preloaded library does it, without the plugin");
  EXPECT_EQ(verdict_of(SetUp::kWorld, {}),
            "SET UP: a GPU for each task; use --bootstrap=off to run it without the plugin");
}

TEST(TaskPlan, SeesWhatThePluginSet) {
  const auto before = two_by_two(1);
  const Settings settings{.port_range = {{5000, 5999}, Source::kSite}};
  const auto environment = applied(plan_of(before, settings), before);
  auto task = succeeded(read_own_plan(environment));
  EXPECT_TRUE(task->is_set);
  EXPECT_TRUE(task->differences.empty());
  EXPECT_EQ(task->settings, settings);

  auto changed = with(environment, {{"LOCAL_RANK", "7"}});
  task = succeeded(read_own_plan(changed));
  EXPECT_EQ(effective_value(task->task.variables, "LOCAL_RANK"), "7");  // the user's value from here on

  task = succeeded(read_own_plan(before));
  EXPECT_FALSE(task->is_set);
}

TEST(OwnGpuList, AListOfTheProgramIsNotOurs) {
  auto environment = two_by_two(1);
  const auto planned = succeeded(read_own_plan(environment));
  environment = applied(planned->step, planned->task.variables, environment);
  EXPECT_TRUE(has_our_gpu_list(*succeeded(read_own_plan(environment))));
  for (const char* const list : {"1", "1,0"}) {
    environment.set("CUDA_VISIBLE_DEVICES", list);
    const auto changed = succeeded(read_own_plan(environment));
    EXPECT_FALSE(changed->step.gpus && has_our_gpu_list(*changed)) << list;
  }
}

// In a world that was not asked for, the list of GPUs stays Slurm's and is in no record of ours.
TEST(OwnGpuList, InAWorldItStaysSlurms) {
  auto environment = two_by_two(1);
  const auto step = succeeded(read_own_plan(environment));
  environment.set("SLURM_BOOTSTRAP_STEP", step_tag(step->facts.id));
  environment.set("SLURM_BOOTSTRAP_SETTINGS", "set_up:world");
  const auto planned = succeeded(read_own_plan(environment));
  const auto set_up = applied(planned->step, planned->task.variables, environment);
  EXPECT_EQ(set_up.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_VISIBLE_DEVICES"));
  const auto untouched = succeeded(read_own_plan(set_up));
  EXPECT_TRUE(has_our_gpu_list(*untouched));
  EXPECT_EQ(effective_value(untouched->task.variables, "BOOTSTRAP_GPU"), "1");
  // A list of one, from a program or another plugin.
  const auto own = succeeded(read_own_plan(with(set_up, {{"CUDA_VISIBLE_DEVICES", "1"}})));
  EXPECT_FALSE(own->step.gpus && has_our_gpu_list(*own));
}

TEST(OwnGpuList, AListThatSlurmNarrowedIsTheTasks) {
  auto environment = with(two_by_two(1), {{"SLURM_GPUS_ON_NODE", "2"}, {"CUDA_VISIBLE_DEVICES", "1"}});
  const auto task = succeeded(read_own_plan(environment));
  EXPECT_EQ(effective_value(task->task.variables, "BOOTSTRAP_GPU"), "0");
  EXPECT_EQ(effective_value(task->task.variables, "LOCAL_RANK"), "0");
  environment.set("SLURM_GPUS_ON_NODE", "1");  // control: one GPU for two tasks
  const auto shared = succeeded(read_own_plan(environment));
  EXPECT_EQ(effective_value(shared->task.variables, "BOOTSTRAP_GPU"), "");
  EXPECT_EQ(effective_value(shared->task.variables, "LOCAL_RANK"), "1");
}

TEST(ExportRecord, ForgedRecordsDoNoHarm) {
  for (const auto* exports : {"", ",", "RANK", "RANK:", "RANK:xyz", ":0", "RANK:123456789", "RANK:-1", "=,=:="}) {
    auto environment =
        with(two_by_two(), {{"RANK", "7"}, {"SLURM_BOOTSTRAP_STEP", "1.2.3"}, {"SLURM_BOOTSTRAP_EXPORTS", exports}});
    EXPECT_TRUE(variable(plan_of(environment), "RANK").is_unsuitable) << exports;
  }
}

}  // namespace
}  // namespace bootstrap
