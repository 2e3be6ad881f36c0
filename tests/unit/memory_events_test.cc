// What the kernel's counts say of memory, for each place where Slurm puts slurmstepd and the tasks.
// SPDX-License-Identifier: Apache-2.0
#include "probe/memory_events.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

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

// Cgroups of the names that Slurm gives, below the one that this process may write to. Goes with its folders.
class StepCgroups {
 public:
  explicit StepCgroups(std::filesystem::path root)
      : top_(std::move(root) / ("bootstrap-test-" + std::to_string(::getpid()))), step_(top_ / "job_12" / "step_0") {
    std::error_code error;
    std::filesystem::create_directories(step_ / "task_0", error);
    is_made_ = !error && write(step_ / "task_0" / "memory.limit_in_bytes", "16777216");
  }
  StepCgroups(const StepCgroups&) = delete;
  StepCgroups& operator=(const StepCgroups&) = delete;
  ~StepCgroups() {
    for (const auto& folder : {step_ / "task_0", step_, step_.parent_path(), top_}) ::rmdir(folder.c_str());
  }

  bool are_made() const { return is_made_; }
  bool enter_step() const { return write(step_ / "cgroup.procs", std::to_string(::getpid())); }
  bool enter_task() const { return write(step_ / "task_0" / "cgroup.procs", std::to_string(::getpid())); }

 private:
  static bool write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream file(path);
    return static_cast<bool>(file << text << std::flush);
  }

  std::filesystem::path top_, step_;
  bool is_made_ = false;
};

[[noreturn]] void end_as_task(const StepCgroups& cgroups, std::size_t bytes) {
  if (!cgroups.enter_task()) ::_exit(1);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) std::memset(memory, 1, bytes);
  ::raise(SIGKILL);  // whoever lived is killed as well, but not by the kernel
  ::_exit(0);
}

// As slurmstepd with one task: what it says when the task has ended. 10 and more: what could not be done.
int word_on_task(const StepCgroups& cgroups, std::size_t bytes) {
  if (!cgroups.enter_step()) return 10;
  const auto task = ::fork();
  if (task == 0) end_as_task(cgroups, bytes);
  int status = 0;
  if (::waitpid(task, &status, 0) != task || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return 11;
  return has_lost_a_process_to_memory(FileTree("/")) ? 1 : 0;
}

// The kernel's own word, for cgroups of version 1. The control is a task that takes little and is killed, too.
TEST(MemoryEvents, AreCountedByThisKernel) {
  for (const bool takes_too_much : {true, false}) {
    const StepCgroups cgroups("/sys/fs/cgroup/memory");
    if (!cgroups.are_made()) GTEST_SKIP() << "no memory cgroup of version 1 that this process may write to";
    const std::size_t bytes = std::size_t{1} << (takes_too_much ? 27 : 20);
    const auto child = ::fork();
    if (child == 0) ::_exit(word_on_task(cgroups, bytes));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == (takes_too_much ? 1 : 0)) << status;
  }
}

}  // namespace
}  // namespace bootstrap
