// The report of a process about itself in a check: the plan as its program sees it, and what set it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_session.h"

#include <gtest/gtest.h>

#include "core/plan/step_plan.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

// The environment of a rank that the plugin has set up.
Environment set_up(int rank) {
  auto environment = two_by_two(rank);
  const auto facts = *read_task_facts(environment);
  const auto plan = *make_step_plan(facts, Settings());
  for (const auto& variable : plan.variables) environment.set(variable.name, variable.value(0));
  environment.set("SLURM_BOOTSTRAP_LAYOUT", "12.0/block");
  return environment;
}

TEST(CheckSelf, IsTheRankWithItsPlan) {
  const auto self = look_at_self(set_up(3));
  ASSERT_TRUE(self);
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

TEST(CheckSelf, RanksAgreeExactlyWhenTheirStepsDo) {
  const auto layout_of = [](const Environment& environment) { return look_at_self(environment).value().report.layout; };
  EXPECT_EQ(layout_of(two_by_two(0)), layout_of(two_by_two(3)));
  auto cyclic = two_by_two(0);
  cyclic.set("SLURM_DISTRIBUTION", "cyclic");
  EXPECT_NE(layout_of(two_by_two(0)), layout_of(cyclic));
}

TEST(CheckSelf, ReportsTheValuesThatTheProgramSees) {
  auto environment = set_up(2);
  environment.set("MASTER_PORT", "29999");
  auto self = look_at_self(environment);
  ASSERT_TRUE(self);
  EXPECT_EQ(self->report.port, 29999);
  environment.set("MASTER_PORT", "many");
  self = look_at_self(environment);
  ASSERT_TRUE(self);
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

TEST(CheckSelf, FailsOutsideOfAStep) {
  const auto self = look_at_self(Environment());
  ASSERT_FALSE(self);
  EXPECT_EQ(self.error().code, ErrorCode::kMissing);
  EXPECT_FALSE(look_at_machine(Environment()).report.host.empty());
}

TEST(PythonFrameworks, AreReadFromWhatTheScriptPrints) {
  CheckReport found;
  add_frameworks(found, "noise\n3.11.2 (/usr/bin/python3)\nmpi4py 3.1.4, torch 2.6.0\n2.21.5\n/venv/libnccl.so.2\n");
  EXPECT_EQ(found.python, "3.11.2 (/usr/bin/python3)");
  EXPECT_EQ(found.frameworks, "mpi4py 3.1.4, torch 2.6.0");
  EXPECT_EQ(found.python_nccl, "2.21.5");
  EXPECT_EQ(found.python_nccl_path, "/venv/libnccl.so.2");
}

}  // namespace
}  // namespace bootstrap
