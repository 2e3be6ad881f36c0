// The report of a process about itself in a check: the plan as its program sees it, and what set the plan.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_session.h"

#include <gtest/gtest.h>

#include "core/plan/plan.h"
#include "core/settings/variables.h"
#include "core/step/step_facts.h"
#include "plan_values.h"

namespace bootstrap {
namespace {

// The environment of a rank that the plugin has set up.
Environment set_up(int rank) {
  auto environment = two_by_two(rank);
  const auto plan = plan_of(environment);
  for (const auto& variable : plan.variables) environment.set(variable.name, variable.value);
  environment.set("SLURM_BOOTSTRAP_LAYOUT", "12.0/block");
  return environment;
}

TEST(CheckSelf, IsTheRankWithItsPlan) {
  const auto self = succeeded(look_at_self(set_up(3)));
  const auto& report = self->report;
  EXPECT_EQ(step_tag(self->facts.id), "12.0.0");
  EXPECT_EQ(report.rank, 3U);
  EXPECT_EQ(report.size, 4U);
  EXPECT_EQ(report.address, "node001");
  EXPECT_EQ(report.port, 20444);
  EXPECT_EQ(report.set_by, SetBy::kPlugin);
  EXPECT_TRUE(report.has_gpus && report.is_nvidia);
  EXPECT_EQ(report.plan_trouble, "");
  EXPECT_GT(report.cpu_count, 0U);
}

TEST(CheckSelf, HasTheSameLayoutInAllRanksOfAStep) {
  const auto layout_of = [](const Environment& environment) { return look_at_self(environment).value().report.layout; };
  EXPECT_EQ(layout_of(two_by_two(0)), layout_of(two_by_two(3)));
  auto cyclic = two_by_two(0);
  cyclic.set("SLURM_DISTRIBUTION", "cyclic");
  EXPECT_NE(layout_of(two_by_two(0)), layout_of(cyclic));
}

TEST(CheckSelf, ReportsTheValuesThatTheProgramSees) {
  auto environment = set_up(2);
  environment.set("MASTER_PORT", "29999");
  auto self = succeeded(look_at_self(environment));
  EXPECT_EQ(self->report.port, 29999);
  environment.set("MASTER_PORT", "many");
  self = succeeded(look_at_self(environment));
  EXPECT_EQ(self->report.port, 0);
  EXPECT_EQ(self->report.plan_trouble, "MASTER_PORT is \"many\", which is no port");
}

TEST(CheckSelf, FindsWhatSetTheVariables) {
  EXPECT_EQ(look_at_self(two_by_two(0)).value().report.set_by, SetBy::kNothing);
  auto environment = set_up(0);
  environment.set("LD_PRELOAD", "/opt/lib/libbootstrap.so");
  EXPECT_EQ(look_at_self(environment).value().report.set_by, SetBy::kPlugin);  // both: srun had the plugin
  environment.unset("SLURM_BOOTSTRAP_LAYOUT");
  EXPECT_EQ(look_at_self(environment).value().report.set_by, SetBy::kPreload);
}

TEST(CheckSelf, ReportsTheDecisionIfNoVariableIsSet) {
  const auto setter = [](std::initializer_list<std::pair<std::string_view, std::string_view>> added) {
    return look_at_self(with(two_by_two(1), added)).value().report.set_by;
  };
  const StepId id{.job = 12, .step = 0};
  const auto world = write_decision(id, StepFacts().decision);
  const auto nothing = write_decision(id, Decision());
  const auto others = write_decision({.job = 12, .step = 7}, StepFacts().decision);
  constexpr auto kLayout = "SLURM_BOOTSTRAP_LAYOUT";
  EXPECT_EQ(setter({}), SetBy::kNothing);
  EXPECT_EQ(setter({{kDecisionVariable, world}, {kLayout, "12.0/block"}}), SetBy::kUnread);
  EXPECT_EQ(setter({{kDecisionVariable, nothing}}), SetBy::kNothing) << "srun did not set it up";
  EXPECT_EQ(setter({{kDecisionVariable, others}, {kLayout, "12.7/block"}}), SetBy::kNothing) << "left by an outer step";
  EXPECT_EQ(setter({{kLayout, "12.0/block"}}), SetBy::kRead);
}

TEST(CheckSelf, FindsValuesThatHaveChangedSince) {
  using Names = std::vector<std::string>;
  const auto changed = [](const Environment& environment) { return look_at_self(environment).value().report.changed; };
  EXPECT_EQ(changed(set_up(1)), Names{});
  EXPECT_EQ(changed(with(set_up(1), {{"MASTER_ADDR", "login1"}, {"MASTER_PORT", "1"}})),
            (Names{"MASTER_ADDR", "MASTER_PORT"}));
  EXPECT_EQ(changed(with(set_up(1), {{"RANK", "0"}})), Names{"RANK"});
  // The first task's environment with its record, which another plugin gives to all tasks of the node.
  auto copied = set_up(0);
  copied.set("SLURM_PROCID", "1");
  EXPECT_EQ(changed(copied), Names{"RANK"});
  EXPECT_EQ(changed(with(two_by_two(1), {{"MASTER_ADDR", "login1"}})), Names{}) << "nothing was set";
  auto kept = with(two_by_two(1), {{"MASTER_ADDR", "n1-ib0"}});
  const auto plan = plan_of(kept);
  for (const auto& variable : plan.variables) {
    if (variable.action != Action::kKept) kept.set(variable.name, variable.value);
  }
  EXPECT_EQ(changed(kept), Names{}) << "the user set it";
}

TEST(CheckSelf, FailsOutsideOfAStep) {
  EXPECT_EQ(error_of(look_at_self(Environment())).code, ErrorCode::kMissing);
  EXPECT_FALSE(look_at_machine(Environment()).first().host.empty());
}

TEST(CheckSelf, ReadsFrameworksAndSlurmsVersionFromWhatProgramsPrint) {
  CheckReport found;
  const auto* const lines =
      "noise\\n3.11.2 (/usr/bin/python3)\\nmpi4py 3.1.4, torch 2.6.0\\n2.21.5\\n/venv/libnccl.so.2\\n";
  add_answers(found, {start_program({"printf", lines}), start_program({"echo", "slurm-wlm 22.05.8"})},
              Deadline::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(found.slurm, "22.05.8");
  EXPECT_EQ(found.python, "3.11.2 (/usr/bin/python3)");
  EXPECT_EQ(found.frameworks, "mpi4py 3.1.4, torch 2.6.0");
  EXPECT_EQ(found.python_nccl, "2.21.5");
  EXPECT_EQ(found.python_nccl_path, "/venv/libnccl.so.2");
}

}  // namespace
}  // namespace bootstrap
