// The kernel's view: real processes in each state, signals, and the memory cgroups in which Slurm puts slurmstepd.
// SPDX-License-Identifier: Apache-2.0
#include "probe/process_state.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fake_machine.h"
#include "in_child.h"

namespace bootstrap {
namespace {

const FileTree kMachine("/");

pid_t start_sleeper() {
  const auto child = ::fork();
  while (child == 0) ::pause();
  return child;
}

TEST(ProcessState, IsReadBehindANameWithParentheses) {
  const auto stat = parse_process_stat("12 (a) T (b) S 7 12 12 34816 -1 4194304 1 2 3 4 150 50 0 0 20 0 1");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->name, "a) T (b");
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent, 7);
  EXPECT_TRUE(stat->has_terminal);
  for (const auto* const text : {"", "12", "12 (a", "12 (a) S 1", ")("}) EXPECT_FALSE(parse_process_stat(text)) << text;
}

TEST(ProcessState, RunsUntilItIsKilled) {
  const auto child = start_sleeper();
  EXPECT_TRUE(runs_on(kMachine, child));
  ASSERT_EQ(::kill(child, SIGSTOP), 0);
  ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_TRUE(runs_on(kMachine, child)) << "stopped";
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t state{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &state, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(runs_on(kMachine, child)) << "a zombie";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(runs_on(kMachine, child)) << "gone";
}

// States that last for microseconds in a real process.
TEST(ProcessState, IsNotRunningIfTheProcessEnds) {
  constexpr const char* kNoSignal = "Name:\ta\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n";
  constexpr const char* kRuns = "12 (a) b) S 1 12 12 0 -1 4194304 90 0";
  struct Row {
    const char* why;
    const char* status;
    const char* stat;
    bool runs;
  };
  for (const auto& row :
       std::initializer_list<Row>{{"runs", kNoSignal, kRuns, true},
                                  {"PF_EXITING", kNoSignal, "12 (a) b) R 1 12 12 0 -1 4194308 90 0", false},
                                  {"SIGKILL is pending", "SigPnd:\t0000000000000100\n", kRuns, false},
                                  {"SIGTERM is pending", "SigPnd:\t0000000000004000\n", kRuns, true},
                                  {"gone between the two files", kNoSignal, "", false}}) {
    const FakeMachine machine;
    machine.write("/proc/12/status", row.status);
    machine.write("/proc/12/stat", row.stat);
    EXPECT_EQ(runs_on(FileTree(machine.root() + "/"), 12), row.runs) << row.why;
  }
}

TEST(ProcessState, AThreadIsBusyUntilItWaits) {
  in_child([] {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    std::atomic<bool> is_over = false;
    std::thread other([&] {
      while (!is_over) {
      }
      char byte = 0;
      EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    });
    // Each state comes sooner or later, and stays.
    while (!is_another_thread_busy(kMachine)) ::usleep(1000);
    is_over = true;
    while (is_another_thread_busy(kMachine)) ::usleep(1000);
    EXPECT_EQ(::write(ends[1], "x", 1), 1);
    other.join();
    EXPECT_FALSE(is_another_thread_busy(kMachine)) << "no other thread";
  });
}

constexpr int kWaits = 500;  // of 10 ms

void rest() { (void)::poll(nullptr, 0, 10); }

void* wait_for_signals(void* /*argument*/) {
  sigset_t set;
  ::sigfillset(&set);
  for (int signal = 0;;) (void)::sigwait(&set, &signal);
}

TEST(SignalThread, FindsSignalsOfAProcess) {
  in_child([] {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    SignalThread none("/proc/self/task/");
    EXPECT_FALSE(none.find() || none.was_signalled());
    pthread_t waiting{};
    ASSERT_EQ(::pthread_create(&waiting, nullptr, wait_for_signals, nullptr), 0);
    for (const int signal : {SIGTERM, SIGINT, SIGALRM, SIGCONT}) {
      SignalThread thread("/proc/self/task/");
      for (int i = 0; i < kWaits && !thread.find(); ++i) rest();
      ASSERT_TRUE(thread.find());
      for (int i = 0; i < 5; ++i) rest();
      EXPECT_FALSE(thread.was_signalled()) << "before signal " << signal;
      ::kill(::getpid(), signal);
      for (int i = 0; i < kWaits && !thread.was_signalled(); ++i) rest();
      EXPECT_TRUE(thread.was_signalled()) << signal;
    }
  });
  SignalThread gone("/nonexistent/");
  EXPECT_FALSE(gone.find() || gone.was_signalled());
}

TEST(MemoryCgroup, CountsTheKillsOfTheStep) {
  constexpr const char* kKilled = "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n";
  constexpr const char* kNone = "low 0\nhigh 0\nmax 12\noom 1\noom_kill 0\noom_group_kill 0\n";
  constexpr const char* kOwn = "/proc/self/cgroup";
  constexpr const char* kOwn2 = "0::/system.slice/slurmstepd.scope/job_12/step_0/slurm\n";
  constexpr const char* kStep2 = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_12/step_0/memory.events";
  constexpr const char* kOwn1 =
      "11:devices:/slurm/uid_1/job_12/step_3\n4:memory:/slurm/uid_1/job_12/step_3/task_0\n0::/x\n";
  constexpr const char* kStep1 = "/sys/fs/cgroup/memory/slurm/uid_1/job_12/step_3/memory.oom_control";
  constexpr const char* kTask1 = "/sys/fs/cgroup/memory/slurm/uid_1/job_12/step_3/task_7/memory.oom_control";
  constexpr const char* kKilled1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
  struct Row {
    const char* why;
    std::vector<std::pair<const char*, const char*>> files;
    bool has_lost;
  };
  for (const auto& row : std::initializer_list<Row>{
           {"version 2", {{kOwn, kOwn2}, {kStep2, kKilled}}, true},
           {"version 2, no kill", {{kOwn, kOwn2}, {kStep2, kNone}}, false},
           {"version 2, no memory", {{kOwn, kOwn2}}, false},
           {"no own cgroup", {{kStep2, kKilled}}, false},
           {"version 1, step", {{kOwn, kOwn1}, {kStep1, kKilled1}}, true},
           {"version 1, task", {{kOwn, kOwn1}, {kTask1, kKilled1}}, true},
           {"version 1, no count", {{kOwn, kOwn1}, {kTask1, "oom_kill_disable 0\nunder_oom 0\n"}}, false},
           {"slurmd's cgroup",
            {{kOwn, "0::/system.slice/slurmd.service\n"},
             {"/sys/fs/cgroup/system.slice/slurmd.service/memory.events", kKilled},
             {"/sys/fs/cgroup/memory.events", kKilled}},
            false},
           {"the root", {{kOwn, "0::/\n"}, {"/sys/fs/cgroup/memory.events", kKilled}}, false},
           {"garbage", {{kOwn, "garbage\n::\n"}, {"/sys/fs/cgroup/memory.events", kKilled}}, false}}) {
    const FakeMachine machine;
    for (const auto& [path, text] : row.files) machine.write(path, text);
    EXPECT_EQ(has_lost_a_process_to_memory(FileTree(machine.root() + "/")), row.has_lost) << row.why;
  }
}

// Cgroups with Slurm's names, below the cgroup that this process may write to. The destructor removes them.
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
  ::raise(SIGKILL);  // the control ends by SIGKILL, too
  ::_exit(0);
}

// Like slurmstepd with one task. A result of 10 or more: a preparation of the test failed.
int lost_to_memory(const StepCgroups& cgroups, std::size_t bytes) {
  if (!cgroups.enter_step()) return 10;
  const auto task = ::fork();
  if (task == 0) end_as_task(cgroups, bytes);
  int status = 0;
  if (::waitpid(task, &status, 0) != task || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return 11;
  return has_lost_a_process_to_memory(kMachine) ? 1 : 0;
}

// On this kernel, for cgroups of version 1. The control is a task that uses little memory and is also killed.
TEST(MemoryCgroup, CountsTheKillsOfThisKernel) {
  for (const bool takes_too_much : {true, false}) {
    const StepCgroups cgroups("/sys/fs/cgroup/memory");
    if (!cgroups.are_made()) GTEST_SKIP() << "no memory cgroup of version 1 that this process may write to";
    const auto child = ::fork();
    if (child == 0) ::_exit(lost_to_memory(cgroups, std::size_t{1} << (takes_too_much ? 27 : 20)));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == (takes_too_much ? 1 : 0)) << status;
  }
}

}  // namespace
}  // namespace bootstrap
