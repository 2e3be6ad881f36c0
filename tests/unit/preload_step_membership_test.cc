// Whether a process belongs to the step that its environment names, held against a /proc of the test's own.
// SPDX-License-Identifier: Apache-2.0
#include "preload/step_membership.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr pid_t kSelf = 400;
constexpr pid_t kStepd = 390;

class OwnTask : public testing::Test {
 protected:
  OwnTask() : proc_(testing::TempDir() + "own_task." + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(proc_);
    claim_.role = Role::kFirst;
    claim_.step = {.job = 12, .step = 0, .restart = 0, .launcher = Launcher::kSlurm};
    claim_.task = kSelf;
  }
  ~OwnTask() override { std::filesystem::remove_all(proc_); }

  void file(pid_t process, const std::string& name, const std::string& text) {
    const auto folder = proc_ / std::to_string(process);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / name) << text;
  }
  // `words` as the kernel keeps them: each ends with a zero.
  void process(pid_t process, pid_t parent, const std::string& name, const std::string& words, int terminal = 0) {
    file(process, "stat",
         cat({std::to_string(process), " (", name, ") S ", std::to_string(parent), " 1 1 ", std::to_string(terminal),
              " -1 4194560 0\n"}));
    file(process, "cmdline", words);
  }
  void slurmstepd(const std::string& title) { process(kStepd, 1, "slurmstepd", title); }

  bool is_own(pid_t process = kSelf) { return belongs_to_step(claim_, process, proc_.c_str()); }

  DetectedRank claim_;
  std::filesystem::path proc_;
};

const std::string kNul(1, '\0');

TEST_F(OwnTask, TheTaskOfTheStepIsItsOwn) {
  process(kSelf, kStepd, "python3", "python3");
  slurmstepd("slurmstepd: [12.0]");
  EXPECT_TRUE(is_own());
  slurmstepd("slurmstepd: [12.0]   " + kNul + kNul);
  EXPECT_TRUE(is_own());
}

TEST_F(OwnTask, ABatchScriptOfAJobThatARankSubmittedIsNot) {
  process(kSelf, kStepd, "slurm_script", "/bin/bash" + kNul + "/var/spool/slurmd/job00012/slurm_script" + kNul);
  for (const char* const title :
       {"slurmstepd: [12.batch]", "slurmstepd: [12.extern]", "slurmstepd: [12.interactive]", "slurmstepd: [12.1]",
        "slurmstepd: [11.0]", "slurmstepd: [13.0]", "slurmstepd: [120.0]"}) {
    slurmstepd(title);
    EXPECT_FALSE(is_own()) << title;
  }
}

TEST_F(OwnTask, ChildrenOfTheTaskAreToo) {
  slurmstepd("slurmstepd: [12.0]");
  process(395, kStepd, "bash", "bash" + kNul);
  process(398, 395, "a (b) c", "static-wrapper" + kNul);
  process(kSelf, 398, "python3", "python3" + kNul);
  claim_.task = 395;
  EXPECT_TRUE(is_own());
}

TEST_F(OwnTask, WhatALauncherHasStartedIsItsBusiness) {
  slurmstepd("slurmstepd: [12.0]");
  process(395, kStepd, "hydra_pmi_proxy", "/opt/bin/hydra_pmi_proxy" + kNul + "--rmk" + kNul);
  process(kSelf, 395, "python3", "python3" + kNul);
  EXPECT_FALSE(is_own());
  process(395, kStepd, "python3", "python3" + kNul + "-m" + kNul + "torch.distributed.run" + kNul);
  EXPECT_FALSE(is_own());
  process(395, kStepd, "hydra", "/opt/bin/hydra" + kNul);  // control
  EXPECT_TRUE(is_own());
}

TEST_F(OwnTask, AShellThatOutlivedItsStepIsNot) {
  process(kSelf, 399, "python3", "python3" + kNul);
  process(399, 1, "tmux: server", "tmux" + kNul);
  process(1, 0, "systemd", "/sbin/init" + kNul);
  claim_.task = 395;
  EXPECT_FALSE(is_own());
  file(kSelf, "cgroup", "0::/user.slice/user-1000.slice\n");
  EXPECT_FALSE(is_own());
}

TEST_F(OwnTask, TheCgroupTellsWhereNoSlurmstepdIsSeen) {
  process(kSelf, 1, "python3", "python3" + kNul);
  process(1, 0, "init", "init" + kNul);
  claim_.task = 77'000;
  for (const char* const own : {"0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n",
                                "8:pids:/\n4:memory:/slurm/uid_10001/job_12/step_0/task_3\n"}) {
    file(kSelf, "cgroup", own);
    EXPECT_TRUE(is_own()) << own;
  }
  claim_.task = kSelf;
  for (const char* const other : {"4:memory:/slurm/uid_10001/job_12/step_batch/task_0\n",
                                  "0::/system.slice/slurmstepd.scope/job_12/step_extern/user/task_special\n",
                                  "0::/system.slice/slurmstepd.scope/job_11/step_0/user\n",
                                  "0::/system.slice/slurmstepd.scope/job_12/step_1/user\n"}) {
    file(kSelf, "cgroup", other);
    EXPECT_FALSE(is_own()) << other;
  }
}

TEST_F(OwnTask, WithoutEitherTheTaskDecidesUnlessItIsABatchScript) {
  process(kSelf, kStepd, "python3", "python3" + kNul);  // hidepid: the parent is not to be seen
  EXPECT_TRUE(is_own());
  process(kSelf, kStepd, "slurm_script", "/bin/bash" + kNul + "/var/spool/slurmd/job00012/slurm_script" + kNul);
  EXPECT_FALSE(is_own());
  process(401, kSelf, "python3", "python3" + kNul);
  EXPECT_FALSE(is_own(401));
  process(kSelf, kStepd, "bash", "bash" + kNul);
  EXPECT_TRUE(is_own(401));
  process(kSelf, kStepd, "salloc", "salloc" + kNul);
  EXPECT_FALSE(is_own(401)) << "its shell is of another job";
  claim_.task = 77'000;
  process(kSelf, kStepd, "bash", "bash" + kNul);
  EXPECT_FALSE(is_own(401));
  claim_.task = kSelf;
  EXPECT_TRUE(is_own(401));
  process(kStepd, 1, "bash", "bash" + kNul);
  process(1, 0, "systemd", "/sbin/init" + kNul);
  EXPECT_FALSE(is_own(401)) << "its parent is seen, and is no slurmstepd: the number was given to another process";
}

TEST_F(OwnTask, EachComponentOfAHeterogeneousStepHasAJobOfItsOwn) {
  process(kSelf, kStepd, "python3", "python3" + kNul);
  slurmstepd("slurmstepd: [13.0]");
  EXPECT_FALSE(is_own());
  claim_.components = 2;
  EXPECT_TRUE(is_own());
  slurmstepd("slurmstepd: [14.0]");
  EXPECT_FALSE(is_own());
}

TEST_F(OwnTask, ATerminalIsOfTheStepOrLeftOver) {
  slurmstepd("slurmstepd: [12.0]");
  process(395, kStepd, "bash", "bash" + kNul, 34817);
  process(kSelf, 395, "python3", "python3" + kNul);  // has left the terminal: setsid
  EXPECT_TRUE(is_own()) << "SLURM_PTY_PORT is not set";
  claim_.may_be_pty = true;
  EXPECT_FALSE(is_own());
  process(395, kStepd, "bash", "bash" + kNul);
  EXPECT_TRUE(is_own()) << "a step inside of such a shell";
  const auto descriptors = proc_ / std::to_string(kSelf) / "fd";
  std::filesystem::create_directories(descriptors);
  for (const char* const name : {"0", "1", "2"}) {
    EXPECT_TRUE(is_own()) << name;
    std::filesystem::create_symlink("/dev/null", descriptors / name);
  }
  EXPECT_FALSE(is_own()) << "srun gives the terminal to the first task, and /dev/null to the others";
  claim_.may_be_pty = false;
  EXPECT_TRUE(is_own());
}

TEST_F(OwnTask, ARankOfMpirunIsBelowItsDaemon) {
  claim_.step = {.job = 12141, .step = 1, .restart = 0, .launcher = Launcher::kMpirun};
  process(kSelf, 395, "python3", "python3" + kNul);
  process(395, kStepd, "orted", "orted" + kNul);
  slurmstepd("slurmstepd: [12.0]");
  EXPECT_TRUE(is_own());
  process(395, 394, "torchrun", "/usr/bin/python3" + kNul + "/usr/bin/torchrun" + kNul);
  process(394, kStepd, "orted", "orted" + kNul);
  EXPECT_FALSE(is_own()) << "a worker of a launcher that is itself a rank";
  process(395, kStepd, "bash", "bash" + kNul);
  EXPECT_FALSE(is_own()) << "a batch script that a rank submitted";
  process(395, 1, "tmux: server", "tmux" + kNul);
  EXPECT_FALSE(is_own());
}

TEST_F(OwnTask, WhatCannotBeReadProvesNothing) {
  EXPECT_FALSE(is_own()) << "no /proc at all";
  for (const char* const stat :
       {"", "400", "400 (", "400 (a", "400 (a)", "400 (a) S", "400 (a) S x", ")400(", "400 (a) S 1 2 3"}) {
    file(kSelf, "stat", stat);
    EXPECT_FALSE(is_own()) << stat;
  }
  process(kSelf, kSelf, "loop", "loop" + kNul);  // its own parent
  claim_.task = 1;
  EXPECT_FALSE(is_own());
}

}  // namespace
}  // namespace bootstrap
