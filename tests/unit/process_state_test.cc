// Which processes go on, by real ones in each state.
// SPDX-License-Identifier: Apache-2.0
#include "probe/process_state.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
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

TEST(ProcessState, ARunningProcessGoesOnAndOneThatIsStoppedToo) {
  const auto child = start_sleeper();
  EXPECT_TRUE(runs_on(kMachine, child));
  ASSERT_EQ(::kill(child, SIGSTOP), 0);
  ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_TRUE(runs_on(kMachine, child));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(ProcessState, AZombieAndOneThatHasGoneDoNot) {
  const auto child = start_sleeper();
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t state{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &state, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(runs_on(kMachine, child));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(runs_on(kMachine, child));
}

// What lasts for microseconds in a real process.
TEST(ProcessState, OneThatIsEndingDoesNot) {
  constexpr const char* kStatus = "Name:\ta\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n";
  const auto state = [&](std::string_view status, std::string_view stat) {
    const FakeMachine machine;
    machine.write("/proc/12/status", status);
    machine.write("/proc/12/stat", stat);
    return runs_on(FileTree(machine.root() + "/"), 12);
  };
  EXPECT_TRUE(state(kStatus, "12 (a) b) S 1 12 12 0 -1 4194304 90 0"));
  EXPECT_FALSE(state(kStatus, "12 (a) b) R 1 12 12 0 -1 4194308 90 0")) << "PF_EXITING";
  EXPECT_FALSE(state("SigPnd:\t0000000000000100\n", "12 (a) S 1 12 12 0 -1 4194304 90 0")) << "SIGKILL is pending";
  EXPECT_TRUE(state("SigPnd:\t0000000000004000\n", "12 (a) S 1 12 12 0 -1 4194304 90 0")) << "SIGTERM is";
  EXPECT_FALSE(state(kStatus, "")) << "gone between the two files";
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
    // Each of them comes sooner or later, and stays.
    while (!is_another_thread_busy(kMachine)) ::usleep(1000);
    is_over = true;
    while (is_another_thread_busy(kMachine)) ::usleep(1000);
    EXPECT_EQ(::write(ends[1], "x", 1), 1);
    other.join();
    EXPECT_FALSE(is_another_thread_busy(kMachine)) << "there is none";
  });
}

}  // namespace
}  // namespace bootstrap
