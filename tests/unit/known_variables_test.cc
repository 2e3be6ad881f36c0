// The limits of variables: a value above its limit counts as not set, and the user learns which.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/variables.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/plan/frameworks.h"
#include "core/step/planned_variables.h"
#include "core/plan/step_plan.h"
#include "core/settings/settings.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

Environment read(const std::vector<std::string>& entries, UnknownVariables unknown = UnknownVariables::kSkip) {
  std::vector<const char*> pointers;
  for (const auto& entry : entries) pointers.push_back(entry.c_str());
  pointers.push_back(nullptr);
  return read_entries(pointers.data(), unknown);
}

TEST(KnownVariables, HoldEachOneThatATableNames) {
  for (const auto& spec : setting_specs()) {
    EXPECT_TRUE(spec.variable.empty() || find_known_variable(spec.variable) != nullptr) << spec.variable;
  }
  for (const auto& row : framework_variables()) EXPECT_NE(find_known_variable(row.name), nullptr) << row.name;
  for (const auto name : kMessages) EXPECT_NE(find_known_variable(name), nullptr) << name;
  for (const auto name : kSlurmGpuVariables) EXPECT_NE(find_known_variable(name), nullptr) << name;
}

TEST(KnownVariables, OfAComponentHaveTheLimitOfTheStep) {
  const auto* const plain = find_known_variable("SLURM_GPUS_PER_TASK");
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(find_known_variable("SLURM_GPUS_PER_TASK_HET_GROUP_12"), plain);
  for (const auto* name : {"", "A", "SLURM_GPUS_PER_TASK_HET_GROUP_", "SLURM_GPUS_PER_TASK_HET_GROUP_1x", "ZZ"}) {
    EXPECT_EQ(find_known_variable(name), nullptr) << name;
  }
}

TEST(KnownVariables, AValueAboveItsLimitCountsAsNotSet) {
  const auto environment = read({"RANK=" + std::string(256, '1'), "WORLD_SIZE=" + std::string(257, '1')});
  EXPECT_TRUE(environment.has("RANK"));
  EXPECT_FALSE(environment.has("WORLD_SIZE"));
  EXPECT_TRUE(environment.is_there("WORLD_SIZE"));
  EXPECT_EQ(environment.refused(), std::vector<std::string>{"WORLD_SIZE"});
}

TEST(KnownVariables, AListWithTooManyEntriesCountsAsNotSet) {
  std::string ports = "12000";
  for (int i = 1; i < 1024; ++i) ports += ",12000";
  EXPECT_TRUE(read({"SLURM_STEP_RESV_PORTS=" + ports}).has("SLURM_STEP_RESV_PORTS"));
  EXPECT_FALSE(read({"SLURM_STEP_RESV_PORTS=" + ports + ",1"}).has("SLURM_STEP_RESV_PORTS"));
  EXPECT_FALSE(read({"PATH=" + std::string(1024, ':')}).has("PATH"));
  EXPECT_TRUE(read({"PATH=" + std::string(1024, ',')}).has("PATH"));
}

TEST(KnownVariables, ASettingThatIsTooLongIsRefusedAsAWrongOne) {
  const auto environment = read({"SLURM_BOOTSTRAP_PORT=" + std::string(100'000, '1')});
  Settings settings;
  const auto applied = apply_environment(settings, environment);
  ASSERT_FALSE(applied);
  EXPECT_TRUE(applied.error().message.ends_with("is not valid: use auto or a port from 1024 to 65535"));
  EXPECT_LE(environment.get("SLURM_BOOTSTRAP_PORT")->size(), 1025U);
  for (const auto& spec : setting_specs()) {
    EXPECT_FALSE(apply_setting(settings, spec, std::string(1025, 'a'), Source::kOption)) << spec.site;
  }
}

TEST(KnownVariables, TheFirstOfEqualNamesCounts) {
  const std::string too_long(300, 'x');
  EXPECT_EQ(read({"RANK=1", "RANK=" + too_long}).get("RANK"), "1");
  EXPECT_FALSE(read({"RANK=" + too_long, "RANK=1"}).has("RANK"));
}

TEST(KnownVariables, OthersAreKeptOnRequestAlone) {
  EXPECT_TRUE(read({"MY_OWN=1"}).all().empty());
  EXPECT_EQ(read({"MY_OWN=1"}, UnknownVariables::kKeep).get("MY_OWN"), "1");
}

TEST(KnownVariables, AreNamedInOneWarningOfThePlan) {
  auto environment = two_by_two();
  EXPECT_EQ(describe_refused(environment), "");
  environment.refuse("SLURM_STEP_RESV_PORTS");
  const auto plan = make_step_plan(*read_task_facts(environment), {});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->warnings.size(), 1U);
  EXPECT_EQ(plan->warnings[0],
            "ignored SLURM_STEP_RESV_PORTS (limit: 8192 bytes, 1024 entries) from the environment of the step, because "
            "the value is too long; unset it or shorten the value");
  for (const auto* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    environment.unset(name);
    environment.refuse(name);
  }
  EXPECT_NE(describe_refused(environment).find("LOCAL_RANK (limit: 256 bytes) and 2 more"), std::string::npos);
}

}  // namespace
}  // namespace bootstrap
