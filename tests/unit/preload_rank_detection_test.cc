// The gate of the preloaded library: which processes it sets up, told from an environment alone.
// SPDX-License-Identifier: Apache-2.0
#include "preload/rank_detection.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

namespace bootstrap {
namespace {

constexpr pid_t kSelf = 400;

// A step of four tasks, unless the entries say otherwise: the first of equal names counts.
DetectedRank claim(std::initializer_list<const char*> entries, pid_t process = kSelf) {
  std::vector<const char*> environment(entries);
  for (const char* const more : {"SLURM_STEP_NUM_TASKS=4", "OMPI_COMM_WORLD_SIZE=4"}) environment.push_back(more);
  environment.push_back(nullptr);
  return detect_rank(environment.data(), process);
}

Role role(std::initializer_list<const char*> entries, pid_t process = kSelf) { return claim(entries, process).role; }

TEST(PreloadGate, ARankIsSetUpOnce) {
  EXPECT_EQ(role({"A=1", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=3"}), Role::kFirst);
  EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_BOOTSTRAP_STEP=12.0.0"}),
            Role::kInside);
  EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_STEP_ID=3", "SLURM_RESTART_COUNT=2", "SLURM_PROCID=3",
                  "SLURM_BOOTSTRAP_STEP=12.3.2"}),
            Role::kInside);
}

TEST(PreloadGate, WhatFailedInAParentIsNotTriedAgain) {
  EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_BOOTSTRAP_GIVEN_UP=12.0.0"}),
            Role::kBeside);
  EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_STEP_ID=1", "SLURM_PROCID=3", "SLURM_BOOTSTRAP_GIVEN_UP=12.0.0"}),
            Role::kFirst);
}

TEST(PreloadGate, TheStampOfAnotherStepIsNone) {
  for (const char* const step_tag :
       {"SLURM_BOOTSTRAP_STEP=12.1.0", "SLURM_BOOTSTRAP_STEP=11.0.0", "SLURM_BOOTSTRAP_STEP=12.0.1",
        "SLURM_BOOTSTRAP_STEP=12.0", "SLURM_BOOTSTRAP_STEP=12.0.0.0",
        "SLURM_BOOTSTRAP_STEP=", "SLURM_BOOTSTRAP_STEP=12.0.", "SLURM_BOOTSTRAP_STEP=12.0.0x",
        "SLURM_BOOTSTRAP_STEP=18446744073709551628.0.0", "SLURM_BOOTSTRAP_STEP=.0.0"}) {
    EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=3", step_tag}), Role::kFirst) << step_tag;
  }
}

TEST(PreloadGate, WhatIsNoStepOfRanksIsOutside) {
  EXPECT_EQ(role({}), Role::kOutside);
  EXPECT_EQ(detect_rank(nullptr, kSelf).role, Role::kOutside);
  EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_PROCID=0"}), Role::kOutside) << "a batch script of 22.05";
  for (const char* const step :
       {"SLURM_STEP_ID=4294967291", "SLURM_STEP_ID=4294967290", "SLURM_STEP_ID=4294967292", "SLURM_STEP_ID=4294967296",
        "SLURM_STEP_ID=", "SLURM_STEP_ID=0x1", "SLURM_STEP_ID=-1"}) {
    EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_PROCID=0", step}), Role::kOutside) << step;
  }
  EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=x"}), Role::kOutside);
  EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_BOOTSTRAP_PRELOAD=off"}),
            Role::kOutside);
}

TEST(PreloadGate, APrologIsNotTheTask) {
  const auto task = {"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_TASK_PID=400",
                     "SLURM_SCRIPT_CONTEXT=prolog_task"};
  EXPECT_EQ(role(task, 401), Role::kBeside);
  EXPECT_EQ(role(task, 400), Role::kFirst) << "22.05 leaves the word in the task";
  EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_TASK_PID=400"}, 401), Role::kFirst)
      << "a program under a wrapper that did not see us";
}

TEST(PreloadGate, ARankOfMpirunIsMpirunsWhateverStepItIsIn) {
  EXPECT_EQ(role({"OMPI_COMM_WORLD_RANK=3", "PMIX_NAMESPACE=795672577"}), Role::kFirstOfMpirun);
  EXPECT_EQ(role({"OMPI_COMM_WORLD_RANK=3", "PMIX_NAMESPACE=795672577", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0",
                  "SLURM_PROCID=1", "SLURM_TASK_PID=399", "SLURM_BOOTSTRAP_STEP=12.0.0"}),
            Role::kFirstOfMpirun);
  EXPECT_EQ(role({"OMPI_COMM_WORLD_RANK=3", "PMIX_NAMESPACE=795672577", "SLURM_BOOTSTRAP_STEP=mpirun-12141.1.0"}),
            Role::kInside);
  EXPECT_EQ(role({"OMPI_COMM_WORLD_RANK=3", "PMIX_NAMESPACE=795672577", "SLURM_BOOTSTRAP_STEP=12141.1.0"}),
            Role::kFirstOfMpirun);
  EXPECT_EQ(role({"OMPI_COMM_WORLD_RANK=3", "PMIX_NAMESPACE=795672577", "SLURM_BOOTSTRAP_GIVEN_UP=mpirun-12141.1.0"}),
            Role::kBeside);
  EXPECT_EQ(role({"OMPI_COMM_WORLD_RANK=3", "PMIX_NAMESPACE=795672577", "SLURM_BOOTSTRAP_PRELOAD=off"}),
            Role::kOutside);
  EXPECT_EQ(role({"OMPI_COMM_WORLD_RANK=3"}), Role::kOutside);
  EXPECT_EQ(role({"OMPI_COMM_WORLD_RANK=x", "PMIX_NAMESPACE=795672577"}), Role::kOutside);
  EXPECT_EQ(role({"PMIX_NAMESPACE=795672577"}), Role::kOutside);
}

TEST(PreloadGate, ATaskOfSlurmIsSlurmsWhateverItInherited) {
  EXPECT_EQ(role({"OMPI_COMM_WORLD_RANK=3", "PMIX_NAMESPACE=slurm.pmix.12.0", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0",
                  "SLURM_PROCID=1"}),
            Role::kFirst);
  EXPECT_EQ(role({"OMPI_COMM_WORLD_RANK=3", "PMIX_NAMESPACE=795672577", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0",
                  "SLURM_PROCID=1", "SLURM_TASK_PID=400"}),
            Role::kFirst)
      << "srun --mpi=none from within a rank of mpirun";
}

TEST(PreloadGate, AStepOfTwoTasksAndMoreIsAskedForByLoading) {
  for (const auto& [tasks, wanted] :
       {std::pair{"SLURM_STEP_NUM_TASKS=2", Role::kFirst}, std::pair{"SLURM_STEP_NUM_TASKS=1", Role::kOutside},
        std::pair{"SLURM_STEP_NUM_TASKS=", Role::kOutside}, std::pair{"SLURM_STEP_NUM_TASKS=x", Role::kOutside}}) {
    EXPECT_EQ(role({tasks, "SLURM_NTASKS=8", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=0"}), wanted) << tasks;
  }
  EXPECT_EQ(
      role({"SLURM_STEP_NUM_TASKS=1", "SLURM_BOOTSTRAP=on", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=0"}),
      Role::kFirst);
  EXPECT_EQ(role({"SLURM_BOOTSTRAP=off", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=0"}), Role::kOutside);
  EXPECT_EQ(role({"OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0", "PMIX_NAMESPACE=795672577"}), Role::kOutside);
  EXPECT_EQ(
      role({"SLURM_BOOTSTRAP=on", "OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0", "PMIX_NAMESPACE=795672577"}),
      Role::kFirstOfMpirun);
}

TEST(PreloadGate, TheTasksOfTheJobCountWhereSlurmDoesNotSayThoseOfTheStep) {
  const char* const entries[] = {"SLURM_NTASKS=2", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=0", nullptr};
  EXPECT_EQ(detect_rank(entries, kSelf).role, Role::kFirst);
  const char* const none[] = {"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=0", nullptr};
  EXPECT_EQ(detect_rank(none, kSelf).role, Role::kOutside);
}

TEST(PreloadGate, SubmititIsLeftAloneUnlessItIsAskedFor) {
  EXPECT_EQ(role({"SUBMITIT_EXECUTOR=slurm", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=3"}), Role::kOutside);
  EXPECT_EQ(
      role({"SUBMITIT_EXECUTOR=slurm", "SLURM_BOOTSTRAP=on", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=3"}),
      Role::kFirst);
}

TEST(PreloadGate, ATerminalIsPossibleUnlessTheStepIsAskedFor) {
  const auto pty = "SLURM_PTY_PORT=31001";
  EXPECT_TRUE(claim({pty, "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=0"}).may_be_pty);
  EXPECT_FALSE(claim({"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=0"}).may_be_pty);
  EXPECT_FALSE(claim({pty, "SLURM_BOOTSTRAP=on", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=0"}).may_be_pty);
}

TEST(PreloadGate, WhatARankLeftInAnotherJobIsSeen) {
  const auto batch = claim({"SLURM_JOB_ID=13", "SLURM_PROCID=0", "SLURM_BOOTSTRAP_STEP=12.0.0"});
  EXPECT_EQ(batch.role, Role::kOutside);
  EXPECT_TRUE(batch.has_leftovers);
  EXPECT_FALSE(claim({"SLURM_PROCID=0", "SLURM_BOOTSTRAP_STEP=12.0.0"}).has_leftovers) << "somebody hid the job";
  EXPECT_FALSE(claim({"SLURM_JOB_ID=13", "SLURM_PROCID=0"}).has_leftovers);
  const auto script = claim({"OMPI_COMM_WORLD_RANK=3", "PMIX_NAMESPACE=795672577", "SLURM_JOB_ID=13", "SLURM_PROCID=0",
                             "SLURM_TASK_PID=400", "SLURM_BOOTSTRAP_STEP=mpirun-12141.1.0"});
  EXPECT_EQ(script.role, Role::kOutside) << "a batch script that a rank of mpirun submitted";
  EXPECT_TRUE(script.has_leftovers);
}

TEST(PreloadGate, TheComponentsOfAHeterogeneousStepAreCounted) {
  EXPECT_EQ(claim({"SLURM_HET_SIZE=2", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=2"}).components, 2U);
  EXPECT_EQ(claim({"SLURM_HET_SIZE=x", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=2"}).components, 1U);
}

TEST(PreloadGate, TheFirstOfEqualNamesCountsAsForGetenv) {
  EXPECT_EQ(role({"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_BOOTSTRAP_STEP=12.0.0",
                  "SLURM_BOOTSTRAP_STEP=1.0.0"}),
            Role::kInside);
}

}  // namespace
}  // namespace bootstrap
