// Environments as values, environments captured in files, and the limits of variables.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/variables.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "core/plan/frameworks.h"
#include "core/plan/plan.h"
#include "core/settings/settings.h"
#include "core/step/planned_variables.h"
#include "core/util/environment.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

TEST(EnvironmentValue, ReadsEntriesAsGetenvDoes) {
  const std::array<const char*, 7> entries{"A=1", "B", "=C", "D=", "A=2", "E=x=y", nullptr};
  const auto environment = read_entries(entries.data(), UnknownVariables::kKeep);
  EXPECT_EQ(environment.get("A"), "1");
  EXPECT_EQ(environment.get("E"), "x=y");
  EXPECT_FALSE(environment.has("B"));
  EXPECT_FALSE(environment.has("D"));  // empty
  EXPECT_EQ(environment.all().size(), 3U);
  EXPECT_TRUE(read_entries(nullptr, UnknownVariables::kKeep).all().empty());
}

class Capture : public testing::Test {
 protected:
  void SetUp() override { path_ = testing::TempDir() + "capture" + std::to_string(::getpid()); }
  void TearDown() override { ::unlink(path_.c_str()); }
  void write(std::string_view text) { std::ofstream(path_, std::ios::binary) << text; }

  std::string path_;
};

TEST_F(Capture, ReadsBothForms) {
  write(std::string_view("A=1\nmore\0B=2\0", 13));
  EXPECT_EQ(captured_environment(path_)->get("A"), "1\nmore");
  EXPECT_EQ(captured_environment(path_)->get("B"), "2");
  write("A=1\nB=2\n");
  EXPECT_EQ(captured_environment(path_)->get("B"), "2");
}

// The table of a node took 3 GB for such a list.
TEST_F(Capture, HasTheLimitsOfAnEnvironment) {
  std::string gpus = "SLURM_STEP_GPUS=0";
  for (int i = 1; i < 20'000; ++i) gpus += ",1";
  write(gpus + "\n");
  EXPECT_TRUE(captured_environment(path_)->is_refused("SLURM_STEP_GPUS"));
}

TEST_F(Capture, RefusesAFileThatIsNoEnvironment) {
  for (const auto text : {std::string_view("#!/bin/sh\nA=1\n"),
                          std::string_view("\x7f"
                                           "ELF\0A=1\0",
                                           9),
                          std::string_view("two words = 1\n"), std::string_view("")}) {
    write(text);
    const auto error = error_of(captured_environment(path_));
    EXPECT_NE(error.message.find("does not hold NAME=VALUE entries"), std::string::npos) << text;
  }
  write(std::string_view("BASH_FUNC_module%%=() {\n}\0", 26));
  EXPECT_TRUE(captured_environment(path_));
}

TEST_F(Capture, NamesTheFileItCannotRead) {
  EXPECT_EQ(error_of(captured_environment("/nonexistent/file")).message,
            "cannot read /nonexistent/file: No such file or directory");
}

Environment read(const std::vector<std::string>& entries, UnknownVariables unknown = UnknownVariables::kSkip) {
  std::vector<const char*> pointers;
  for (const auto& entry : entries) pointers.push_back(entry.c_str());
  pointers.push_back(nullptr);
  return read_entries(pointers.data(), unknown);
}

TEST(KnownVariables, HaveEachVariableOfTheTables) {
  for (const auto& spec : setting_specs()) {
    EXPECT_TRUE(spec.variable.empty() || find_known_variable(spec.variable)) << spec.variable;
  }
  for (const auto& row : framework_variables()) EXPECT_TRUE(find_known_variable(row.name)) << row.name;
  for (const auto name : kMessages) EXPECT_TRUE(find_known_variable(name)) << name;
  for (const auto name : kSlurmGpuVariables) EXPECT_TRUE(find_known_variable(name)) << name;
}

TEST(KnownVariables, OfAComponentHaveTheLimitOfTheStep) {
  EXPECT_EQ(find_known_variable("SLURM_GPUS_PER_TASK_HET_GROUP_12")->name, "SLURM_GPUS_PER_TASK");
  for (const auto* name :
       {"", "A", "SLURM_GPUS_PER_TASK_HET_GROUP_", "SLURM_GPUS_PER_TASK_HET_GROUP_1x",
        "SLURM_GPUS_PER_TASK_HET_GROUP_012", "SLURM_GPUS_PER_TASK_HET_GROUP_128", "RANK_HET_GROUP_1", "ZZ"}) {
    EXPECT_FALSE(find_known_variable(name)) << name;
  }
}

TEST(KnownVariables, AValueAboveItsLimitCountsAsNotSet) {
  const auto environment = read({"RANK=" + std::string(256, '1'), "WORLD_SIZE=" + std::string(257, '1')});
  EXPECT_TRUE(environment.has("RANK"));
  EXPECT_FALSE(environment.has("WORLD_SIZE"));
  EXPECT_TRUE(environment.is_there("WORLD_SIZE"));
  EXPECT_EQ(environment.refused(), (std::set<std::string, std::less<>>{"WORLD_SIZE"}));
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
  const auto error = error_of(apply_environment(settings, environment));
  EXPECT_TRUE(error.message.ends_with("is not valid: use auto or a port from 1024 to 65535"));
  EXPECT_LE(environment.get("SLURM_BOOTSTRAP_PORT")->size(), 1025U);
  for (const auto& spec : setting_specs()) {
    if (spec.applies_to == AppliesTo::kProcess) continue;
    EXPECT_FALSE(apply_setting(settings, spec, std::string(1025, 'a'), Source::kOption)) << spec.name;
  }
}

TEST(KnownVariables, TheFirstOfEqualNamesCounts) {
  const std::string too_long(300, 'x');
  EXPECT_EQ(read({"RANK=1", "RANK=" + too_long}).get("RANK"), "1");
  EXPECT_FALSE(read({"RANK=" + too_long, "RANK=1"}).has("RANK"));
}

TEST(KnownVariables, OthersAreKeptOnlyOnRequest) {
  EXPECT_TRUE(read({"MY_OWN=1"}).all().empty());
  EXPECT_EQ(read({"MY_OWN=1"}, UnknownVariables::kKeep).get("MY_OWN"), "1");
}

TEST(KnownVariables, AreNamedInOneWarningOfThePlan) {
  auto environment = two_by_two();
  EXPECT_EQ(describe_refused(environment), "");
  environment.refuse("SLURM_STEP_RESV_PORTS");
  const auto plan = succeeded(plan_step(*read_task_facts(environment), {}));
  EXPECT_EQ(only(plan->warnings),
            "ignored SLURM_STEP_RESV_PORTS (limit: 8192 bytes, 1024 entries) from the environment of the step, because "
            "the value is too long; unset it or shorten the value");
  for (const auto* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    environment.unset(name);
    environment.refuse(name);
  }
  EXPECT_NE(describe_refused(environment).find(" RANK (limit: 256 bytes) and 2 more"), std::string::npos);
}

}  // namespace
}  // namespace bootstrap
