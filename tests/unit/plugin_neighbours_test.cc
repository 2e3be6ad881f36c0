// The plugin's hooks beside those of other plugins, which change the environment between user_init and task_init: one
// that starts containers (pyxis), one that binds tasks (mpibind).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "plugin_scenario.h"

namespace bootstrap {
namespace {

using Variables = std::map<std::string, std::string>;

// What task 1 of a node with two of them has, when the other plugins have set these since user_init; in task_init the
// variables of Slurm are there again.
Outcome task_beside(const Variables& job, const Variables& since, const std::function<int(Variables&)>& judge) {
  return in_child([&] {
    auto environment = job_environment();
    for (const auto& [name, value] : job) environment.set(name, value);
    enter_step(environment);
    auto* const handle = the_spank_handle();
    FAIL_IF(slurm_spank_init(handle, 0, nullptr) != 0 || slurm_spank_user_init(handle, 0, nullptr) != 0);
    auto& task = spank_double().task_environment;
    for (const auto* name : {"SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES"})
      task[name] = environment.get(name).value_or("");
    for (const auto& [name, value] : since) task[name] = value;
    FAIL_IF(start_task(1, 1) != 0);
    return judge(task);
  });
}

void expect_values(const Variables& job, const Variables& since, const Variables& expected) {
  const auto outcome = task_beside(job, since, [&](Variables& task) {
    for (const auto& [name, value] : expected) {
      if (task[name] != value) std::fprintf(stderr, "%s=%s\n", name.c_str(), task[name].c_str());
    }
    return 0;
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.printed, "");
}

TEST(PluginNeighbours, WhoTheTaskIsAndWhereTheRanksMeetIsOurs) {
  expect_values(
      {{"SLURM_BOOTSTRAP_PORT", "23456"}},
      {{"RANK", "7"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "53333"}, {"MASTER_ADDR", "c"}},
      {{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "23456"}, {"MASTER_ADDR", "node001"}});
}

TEST(PluginNeighbours, ATaskWithItsOwnGpuFirstStaysAtDeviceZero) {
  expect_values({{"SLURM_BOOTSTRAP_GPU", "first"}}, {{"LOCAL_RANK", "1"}, {"RANK", "1"}},
                {{"LOCAL_RANK", "0"}, {"CUDA_VISIBLE_DEVICES", "1,0"}});
}

// The control: what was there in user_init is the user's.
TEST(PluginNeighbours, WhatTheUserHadSetBeforeStays) {
  const Variables users{{"MASTER_PORT", "23457"}};
  expect_values(users, users, users);
}

TEST(PluginNeighbours, MattersOfTasteAreTheOtherPlugins) {
  expect_values({{"SLURM_BOOTSTRAP_FRAMEWORKS", "openmp"}}, {{"OMP_NUM_THREADS", "93"}}, {{"OMP_NUM_THREADS", "93"}});
}

TEST(PluginNeighbours, ThreadsAreNotSetBeforeOtherPluginsHaveLooked) {
  expect_success([] {
    auto environment = job_environment();
    environment.set("SLURM_BOOTSTRAP_FRAMEWORKS", "openmp");
    environment.set("SLURM_CPUS_PER_TASK", "2");
    enter_step(environment);
    auto* const handle = the_spank_handle();
    FAIL_IF(slurm_spank_init(handle, 0, nullptr) != 0 || slurm_spank_user_init(handle, 0, nullptr) != 0);
    auto& task = spank_double().task_environment;
    FAIL_IF(task.count("OMP_NUM_THREADS") != 0);
    FAIL_IF(start_task(1, 1) != 0);
    FAIL_IF(!(task.count("OMP_NUM_THREADS") == 1));
    return 0;
  });
}

TEST(PluginNeighbours, AListOfAnotherPluginStaysUnlessTheUserAskedUs) {
  const Variables bound{{"CUDA_VISIBLE_DEVICES", "1"}};
  expect_values({}, bound, {{"CUDA_VISIBLE_DEVICES", "1"}, {"LOCAL_RANK", "0"}, {"BOOTSTRAP_GPU", "0"}});
  expect_values({{"SLURM_BOOTSTRAP_GPU", "index"}}, bound, {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"LOCAL_RANK", "1"}});
}

// What Slurm itself narrowed, in all of its variables, is given back.
TEST(PluginNeighbours, AListOfSlurmsIsNoOtherPlugins) {
  expect_values({}, {{"CUDA_VISIBLE_DEVICES", "1"}, {"SLURM_STEP_GPUS", "1"}},
                {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"LOCAL_RANK", "1"}, {"SLURM_STEP_GPUS", "0,1"}});
}

}  // namespace
}  // namespace bootstrap
