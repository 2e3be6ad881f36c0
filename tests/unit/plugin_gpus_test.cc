// The plugin's hooks around GPUs and beside other plugins, which change the environment between user_init and
// task_init: Slurm's own binding, a plugin that starts containers (pyxis), one that binds tasks (mpibind).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "plugin_scenario.h"

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

constexpr auto* kTooFewCpus = "needs CPUs 0 and 1";

// The lists of task 1 of two when they have CPUs 0 and 1, with this argument in plugstack.conf.
Outcome lists_of_second_task(const std::string& argument) {
  return in_child([&] {
    enter_step(with(job_environment(), {{"SLURM_STEP_GPUS", "0,1,2,3"}, {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}));
    const Sleeper tasks[] = {Sleeper(0), Sleeper(1)};
    if (!tasks[0].is_ready() || !tasks[1].is_ready()) {
      (void)std::fputs(kTooFewCpus, stderr);
      return;
    }
    start_node(argument);
    for (int task : {0, 0, 1, 1}) {  // as if listed twice in plugstack.conf
      spank_double().task = task;
      spank_double().task_pid = tasks[task].process();
      EXPECT_EQ(call(slurm_spank_task_post_fork), 0);
    }
    start_task(1, 1);  // one alone: slurmstepd forks a process for each
    const auto& task = spank_double().task_environment;
    (void)std::fprintf(stderr, "%s %s", task.at("CUDA_VISIBLE_DEVICES").c_str(), task.at("BOOTSTRAP_GPUS").c_str());
  });
}

// A checkout may be writable for a group, and such a file would be refused.
class TopologyCopy {
 public:
  TopologyCopy() {
    std::ofstream(path_) << std::ifstream(TEST_DATA_DIR "/topologies/two-cpus.txt").rdbuf();
    ::chmod(path_.c_str(), 0644);
  }
  TopologyCopy(const TopologyCopy&) = delete;
  TopologyCopy& operator=(const TopologyCopy&) = delete;
  ~TopologyCopy() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = ::testing::TempDir() + "two-cpus." + std::to_string(::getpid()) + ".txt";
};

TEST(PluginGpus, TheOrderOfGpusFollowsTheCoresOfTheTasks) {
  const TopologyCopy topology;
  const std::pair<std::string, std::string> cases[] = {{"topology=" + topology.path(), "2,0,3,1 1,3"},
                                                       {"topology=/nowhere/to/be/found.txt", "0,2,1,3 1,3"}};
  for (const auto& [argument, lists] : cases) {
    const auto outcome = lists_of_second_task(argument);
    if (outcome.printed == kTooFewCpus) GTEST_SKIP() << kTooFewCpus;
    EXPECT_EQ(outcome.status, kDone) << outcome.printed;
    EXPECT_EQ(outcome.printed, lists);
  }
}

using Variables = std::map<std::string, std::string>;

// Task 1 of a node with two of them has the values `expected`, if the other plugins, or Slurm, have set these since
// user_init; in task_init the variables of Slurm are there again. The empty value stands for a variable that is not
// set.
void expect_values(const Variables& job, const Variables& since, const Variables& expected) {
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
  const Variables lists{{"SLURM_STEP_GPUS", "0,1"}, {"ROCR_VISIBLE_DEVICES", "0,1"}};
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
  const Variables users{{"MASTER_PORT", "23457"}};
  expect_values(users, users, users);
}

TEST(PluginNeighbours, ThreadsAreTheOtherPluginsOrSetInTheTask) {
  const Variables job{{"SLURM_BOOTSTRAP_FRAMEWORKS", "openmp"}};
  expect_values(job, {{"OMP_NUM_THREADS", "93"}}, {{"OMP_NUM_THREADS", "93"}});
  expect_values(job, {{"SLURM_CPUS_PER_TASK", "1"}}, {{"OMP_NUM_THREADS", "1"}});
  expect_success([] {
    enter_step(with(job_environment(), {{"SLURM_BOOTSTRAP_FRAMEWORKS", "openmp"}, {"SLURM_CPUS_PER_TASK", "1"}}));
    start_node();
    EXPECT_EQ(spank_double().task_environment.count("OMP_NUM_THREADS"), 0U) << "other plugins have not looked yet";
  });
}

TEST(PluginNeighbours, AListOfAnotherPluginStaysUnlessTheUserAskedUs) {
  const Variables bound{{"CUDA_VISIBLE_DEVICES", "1"}};
  expect_values({}, bound, {{"CUDA_VISIBLE_DEVICES", "1"}, {"LOCAL_RANK", "0"}, {"BOOTSTRAP_GPU", "0"}});
  expect_values({{"SLURM_BOOTSTRAP_GPU", "index"}}, bound, {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"LOCAL_RANK", "1"}});
}

}  // namespace
}  // namespace bootstrap
