// The plugin's hooks around GPUs and beside other plugins, which change the environment between user_init and
// task_init: Slurm's own binding, a plugin that starts containers (pyxis), one that binds tasks (mpibind).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <string>

#include "known_node.h"
#include "plugin_scenario.h"
#include "slurmstepd/task_gpus.h"

namespace bootstrap {
namespace {

// A process that stands for a task with this one CPU.
class Sleeper {
 public:
  explicit Sleeper(int cpu) {
    process_ = ::fork();
    if (process_ != 0) return;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    ::_exit(::sched_setaffinity(0, sizeof only, &only) == 0 && ::raise(SIGSTOP) == 0 ? 0 : 1);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  // False when the machine has no such CPU.
  bool is_ready() const {
    int status = 0;
    return ::waitpid(process_, &status, WUNTRACED) == process_ && WIFSTOPPED(status);
  }
  pid_t process() const { return process_; }

 private:
  pid_t process_ = -1;
};

TEST(PluginGpus, TheOrderOfGpusFollowsTheCoresOfTheTasks) {
  const Sleeper tasks[] = {Sleeper(0), Sleeper(1)};
  if (!tasks[0].is_ready() || !tasks[1].is_ready()) GTEST_SKIP() << "needs CPUs 0 and 1";
  NodeGpus plan;
  plan.list = all_gpus(4);
  plan.tasks = 2;
  plan.gpus = known_node("two-cpus").gpus;
  plan.order = {0, 1, 2, 3};
  for (const bool is_known : {true, false}) {
    if (!is_known) plan.gpus.assign(4, Gpu());
    GpuOrder order;
    order.prepare(plan);
    for (const std::uint32_t task : {0, 0, 1}) {  // as if listed twice in plugstack.conf
      EXPECT_FALSE(order.reordered(plan)) << "the cores of some tasks are not known yet";
      order.note_task(plan, task, tasks[task].process());
    }
    const auto gpus = order.reordered(plan);
    EXPECT_EQ(gpus.has_value(), is_known);
    EXPECT_EQ((gpus ? *gpus : plan).ordered_list(), is_known ? "2,0,3,1" : "0,1,2,3");
  }
}

using Values = std::map<std::string, std::string>;

// Task 1 of a node with two of them has the values `expected`, if the other plugins, or Slurm, have set these since
// user_init; in task_init the variables of Slurm are there again. The empty value stands for a variable that is not
// set.
void expect_values(const Values& job, const Values& since, const Values& expected) {
  expect_success([&] {
    auto environment = job_environment();
    for (const auto& [name, value] : job) environment.set(name, value);
    enter_step(environment);
    start_node();
    auto& task = spank_double().task_environment;
    for (const auto* name : {"SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES"})
      task[name] = environment.get(name).value_or("");
    for (const auto& [name, value] : since) {
      task[name] = value;
      if (value.empty()) task.erase(name);
    }
    start_task(1, 1);
    for (const auto& [name, value] : expected) EXPECT_EQ(task[name], value) << name;
  });
}

TEST(PluginGpus, WhatSlurmTookFromATaskIsGivenBack) {
  const Values lists{{"SLURM_STEP_GPUS", "0,1"}, {"ROCR_VISIBLE_DEVICES", "0,1"}};
  expect_values(lists, {{"SLURM_STEP_GPUS", ""}, {"CUDA_VISIBLE_DEVICES", ""}}, lists);
  // HIP reads CUDA_VISIBLE_DEVICES on top of Slurm's list, and it does not show that Slurm took that.
  expect_values({{"ROCR_VISIBLE_DEVICES", "0,1"}, {"CUDA_VISIBLE_DEVICES", "1,0"}}, {{"SLURM_STEP_GPUS", ""}}, lists);
  // Slurm narrows all of its variables.
  expect_values({}, {{"CUDA_VISIBLE_DEVICES", "1"}, {"SLURM_STEP_GPUS", "1"}},
                {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"LOCAL_RANK", "1"}, {"SLURM_STEP_GPUS", "0,1"}});
}

TEST(PluginGpus, ATaskThatSlurmBindsToOneGpuPassesForANodeOfItsOwn) {
  expect_values({{"SLURM_STEP_GPUS", "0,1,2,3"},
                 {"CUDA_VISIBLE_DEVICES", "0,1,2,3"},
                 {"SLURM_BOOTSTRAP_GPU_BIND", "narrow:--gpu-bind"}},
                {{"CUDA_VISIBLE_DEVICES", "3"}},
                {{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"BOOTSTRAP_GPUS", ""}});
}

TEST(PluginNeighbours, TheRankAndTheMasterOfATaskAreOurs) {
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
  const Values users{{"MASTER_PORT", "23457"}};
  expect_values(users, users, users);
}

TEST(PluginNeighbours, ThreadsAreTheOtherPluginsOrSetInTheTask) {
  const Values job{{"SLURM_BOOTSTRAP_FRAMEWORKS", "openmp"}};
  expect_values(job, {{"OMP_NUM_THREADS", "93"}}, {{"OMP_NUM_THREADS", "93"}});
  expect_values(job, {{"SLURM_CPUS_PER_TASK", "1"}}, {{"OMP_NUM_THREADS", "1"}});
  expect_success([] {
    enter_step(with(job_environment(), {{"SLURM_BOOTSTRAP_FRAMEWORKS", "openmp"}, {"SLURM_CPUS_PER_TASK", "1"}}));
    start_node();
    EXPECT_EQ(spank_double().task_environment.count("OMP_NUM_THREADS"), 0U) << "other plugins have not looked yet";
  });
}

TEST(PluginNeighbours, AListOfAnotherPluginStaysUnlessTheUserAskedUs) {
  const Values bound{{"CUDA_VISIBLE_DEVICES", "1"}};
  expect_values({}, bound, {{"CUDA_VISIBLE_DEVICES", "1"}, {"LOCAL_RANK", "0"}, {"BOOTSTRAP_GPU", "0"}});
  expect_values({{"SLURM_BOOTSTRAP_GPU", "index"}}, bound, {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"LOCAL_RANK", "1"}});
}

}  // namespace
}  // namespace bootstrap
