// The plugin's hooks around GPUs, with Slurm played by a double: binding, order, and what Slurm took from a task.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
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

constexpr int kTooFewCpus = 66;

// What task 1 of two gets as its list when they have CPUs 0 and 1, with these arguments in plugstack.conf.
Outcome list_of_second_task(const std::string& arguments, const std::string& expected) {
  return in_child([&] {
    auto environment = job_environment();
    environment.set("SLURM_STEP_GPUS", "0,1,2,3");
    environment.set("CUDA_VISIBLE_DEVICES", "0,1,2,3");
    enter_step(environment);
    const Sleeper first(0);
    const Sleeper second(1);
    if (!first.is_ready() || !second.is_ready()) return kTooFewCpus;
    auto* const handle = the_spank_handle();
    auto argument = arguments;
    char* list[] = {argument.data()};
    FAIL_IF(slurm_spank_init(handle, 1, list) != 0 || slurm_spank_user_init(handle, 1, list) != 0);
    for (const auto* task : {&first, &second}) {
      for (int round = 0; round < 2; ++round) {  // as if listed twice in plugstack.conf
        spank_double().task = task == &first ? 0 : 1;
        spank_double().task_pid = task->process();
        FAIL_IF(slurm_spank_task_post_fork(handle, 1, list) != 0);
      }
    }
    FAIL_IF(start_task(1, 1) != 0);  // one alone: slurmstepd forks a process for each
    const auto& task = spank_double().task_environment;
    (void)std::fprintf(stderr, "%s %s", task.at("CUDA_VISIBLE_DEVICES").c_str(), task.at("BOOTSTRAP_GPUS").c_str());
    FAIL_IF(!(task.at("CUDA_VISIBLE_DEVICES") == expected));
    return 0;
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
  const auto outcome = list_of_second_task("topology=" + topology.path(), "2,0,3,1");
  if (outcome.status == kTooFewCpus) GTEST_SKIP() << "needs CPUs 0 and 1";
  EXPECT_EQ(outcome.status, 0) << outcome.printed;
  EXPECT_EQ(outcome.printed, "2,0,3,1 1,3");
}

TEST(PluginGpus, WhatSlurmTookFromATaskIsGivenBack) {
  expect_success([] {
    auto environment = job_environment();
    environment.set("ROCR_VISIBLE_DEVICES", "0,1");
    enter_step(environment);
    FAIL_IF(run_hooks(1, 1) != 0);
    const auto& task = spank_double().task_environment;
    FAIL_IF(!(task.at("SLURM_STEP_GPUS") == "0,1" && task.at("ROCR_VISIBLE_DEVICES") == "0,1"));
    return 0;
  });
}

// HIP reads CUDA_VISIBLE_DEVICES on top of Slurm's list, and it does not show that Slurm took that.
TEST(PluginGpus, BelowAUsersListItIsGivenBackToo) {
  expect_success([] {
    auto environment = job_environment();
    environment.set("ROCR_VISIBLE_DEVICES", "0,1");
    environment.set("CUDA_VISIBLE_DEVICES", "1,0");
    enter_step(environment);
    spank_double().task_environment["CUDA_VISIBLE_DEVICES"] = "1,0";
    FAIL_IF(run_hooks(1, 1) != 0);
    auto& task = spank_double().task_environment;
    FAIL_IF(!(task["SLURM_STEP_GPUS"] == "0,1" && task["ROCR_VISIBLE_DEVICES"] == "0,1"));
    return 0;
  });
}

TEST(PluginGpus, WithoutATopologyTheOrderIsSlurms) {
  const auto outcome = list_of_second_task("topology=/nowhere/to/be/found.txt", "0,2,1,3");
  if (outcome.status == kTooFewCpus) GTEST_SKIP() << "needs CPUs 0 and 1";
  EXPECT_EQ(outcome.status, 0) << outcome.printed;
}

}  // namespace
}  // namespace bootstrap
