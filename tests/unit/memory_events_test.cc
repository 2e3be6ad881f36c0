// What the kernel's counts say of memory, for each place where Slurm puts slurmstepd and the tasks.
// SPDX-License-Identifier: Apache-2.0
#include "probe/memory_events.h"

#include <gtest/gtest.h>

#include "fake_machine.h"

namespace bootstrap {
namespace {

constexpr const char* kEnded = "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n";
constexpr const char* kNone = "low 0\nhigh 0\nmax 12\noom 1\noom_kill 0\noom_group_kill 0\n";

bool has_lost(std::initializer_list<std::pair<const char*, const char*>> files) {
  const FakeMachine machine;
  for (const auto& [path, text] : files) machine.write(std::string("/") + path, text);
  return has_lost_a_process_to_memory(FileTree(machine.root() + "/"));
}

TEST(MemoryEvents, AreThoseOfTheStepInVersion2) {
  constexpr const char* kOwn = "0::/system.slice/slurmstepd.scope/job_12/step_0/slurm\n";
  constexpr const char* kStep = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_12/step_0/memory.events";
  EXPECT_TRUE(has_lost({{"proc/self/cgroup", kOwn}, {kStep, kEnded}}));
  EXPECT_FALSE(has_lost({{"proc/self/cgroup", kOwn}, {kStep, kNone}}));
  EXPECT_FALSE(has_lost({{"proc/self/cgroup", kOwn}}));
  EXPECT_FALSE(has_lost({{kStep, kEnded}}));
}

TEST(MemoryEvents, AreThoseOfEachTaskInVersion1) {
  constexpr const char* kOwn =
      "11:devices:/slurm/uid_1/job_12/step_3\n4:memory:/slurm/uid_1/job_12/step_3/task_0\n0::/x\n";
  const std::string step = "sys/fs/cgroup/memory/slurm/uid_1/job_12/step_3/";
  const auto of_step = step + "memory.oom_control";
  const auto of_task = step + "task_7/memory.oom_control";
  constexpr const char* kTaskEnded = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
  EXPECT_TRUE(has_lost({{"proc/self/cgroup", kOwn}, {of_step.c_str(), kTaskEnded}}));
  EXPECT_TRUE(has_lost({{"proc/self/cgroup", kOwn}, {of_task.c_str(), kTaskEnded}}));
  EXPECT_FALSE(has_lost({{"proc/self/cgroup", kOwn}, {of_task.c_str(), "oom_kill_disable 0\nunder_oom 0\n"}}));
}

// Without a cgroup of the step others are counted, too.
TEST(MemoryEvents, OfOthersSayNothing) {
  EXPECT_FALSE(has_lost({{"proc/self/cgroup", "0::/system.slice/slurmd.service\n"},
                         {"sys/fs/cgroup/system.slice/slurmd.service/memory.events", kEnded},
                         {"sys/fs/cgroup/memory.events", kEnded}}));
  EXPECT_FALSE(has_lost({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/memory.events", kEnded}}));
  EXPECT_FALSE(has_lost({{"proc/self/cgroup", "garbage\n::\n"}, {"sys/fs/cgroup/memory.events", kEnded}}));
}

}  // namespace
}  // namespace bootstrap
