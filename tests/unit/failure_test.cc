// A task that failed: what its node sends to srun comes back the same, forgeries do not count, and what it is called.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/failure.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

namespace bootstrap {
namespace {

constexpr std::uint64_t kToken = 0xfedcba9876543210U;

Failure failure(std::int32_t status, bool is_out_of_memory = false) {
  return {.rank = 5,
          .local_rank = 1,
          .host = "node002",
          .wait_status = status,
          .milliseconds = 3249,
          .is_out_of_memory = is_out_of_memory};
}

TEST(FailureText, ComesBackTheSame) {
  for (const std::int32_t status : {256, 11, 9, 0x8b, 255 << 8, -1}) {
    for (const bool is_out_of_memory : {false, true}) {
      const auto sent = failure(status, is_out_of_memory);
      EXPECT_EQ(read_failure(write_failure(sent, kToken), kToken), sent);
    }
  }
  auto refused = failure(256);
  refused.is_refused = true;
  auto outlived = failure(SIGKILL);
  outlived.is_outlived = true;
  EXPECT_EQ(read_failure(write_failure(outlived, kToken), kToken), outlived);
  EXPECT_EQ(read_failure(write_failure(refused, kToken), kToken), refused);
  const FailureAddress address{43210, kToken};
  EXPECT_EQ(read_failure_address(write_failure_address(address)), address);
  EXPECT_EQ(write_failure_address(address), "43210.fedcba9876543210");
}

TEST(FailureText, OnlyWhoKnowsTheTokenIsHeard) {
  const auto text = write_failure(failure(256), kToken);
  EXPECT_TRUE(read_failure(text, kToken));
  EXPECT_FALSE(read_failure(text, kToken + 1));
  EXPECT_FALSE(read_failure(write_failure(failure(256), 0), kToken));
}

// The kernel's filter compares words of four bytes.
TEST(FailureText, BeginsWithAPrefixOfOneLength) {
  for (const auto token : {kToken, std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX}) {
    EXPECT_EQ(failure_prefix(token).size(), 36U) << token;
    EXPECT_EQ(failure_prefix(token).size() % 4, 0U);
    EXPECT_TRUE(write_failure(failure(256), token).starts_with(failure_prefix(token) + " "));
  }
}

TEST(FailureText, ForgedTextDoesNotReachTheTerminal) {
  const std::string prefix = "bootstrap-failure-3 fedcba9876543210 ";
  EXPECT_TRUE(read_failure(prefix + "5 1 node002 256 3249 -", kToken));
  for (const auto* rest :
       {"5 1 node\033[31m 256 3249 -", "5 1 node002 256 -", "5 1 node002 256 3249 - x", "5 1 node002 256 3249 x",
        "-5 1 node002 256 3249 -", "5 1 \xc3\xa4 256 3249 -", "99999999 1 n 256 1 -", "5 1  256 3249 -", ""}) {
    EXPECT_FALSE(read_failure(prefix + rest, kToken)) << rest;
  }
  EXPECT_FALSE(read_failure(prefix + "5 1 " + std::string(kMaxFailureText, 'n') + " 256 1 -", kToken));
  for (const auto* text :
       {"", ".", "1", "0.1", "1023.1", "70000.1", "2000.xyz", "2000.", "-1.1", "2000.11111111111111111"}) {
    EXPECT_FALSE(read_failure_address(text)) << text;
  }
}

TEST(FailureWords, SayWhoAndHow) {
  EXPECT_EQ(failing_task(failure(1 << 8)), "task 5 (node002, local rank 1)");
  EXPECT_EQ(failure_time(failure(1 << 8)), "3.2 s after the step began");
  EXPECT_EQ(exit_cause(failure(1 << 8)), "exit code 1");
  EXPECT_EQ(exit_cause(failure(11)), "killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(exit_cause(failure(40)), "killed by signal 40");
}

// Whoever is killed has been killed by somebody; only the kernel knows whether memory was the reason.
TEST(FailureWords, NameMemoryOnlyWhereTheKernelDoes) {
  EXPECT_EQ(exit_cause(failure(9)), "killed by signal 9 (SIGKILL)");
  EXPECT_EQ(exit_cause(failure(9, true)),
            "killed by signal 9 (SIGKILL), after the kernel killed a process there because it was out of memory");
  EXPECT_NE(exit_cause(failure(1 << 8, true)).find("out of memory"), std::string::npos);
  EXPECT_TRUE(is_killed(failure(9)));
  EXPECT_FALSE(is_killed(failure(9, true)));
}

TEST(FailureWords, NumbersAreThoseOfTheSystem) {
  for (int signal = 1; signal < 32; ++signal) {
    const auto name = std::string("(SIG") + ::sigabbrev_np(signal) + ")";
    const auto cause = exit_cause(failure(signal | 0x80));  // 0x80: with a core file
    const bool has_other_name = signal == SIGPOLL;
    EXPECT_TRUE(has_other_name || cause.find(name) != std::string::npos) << cause << " " << name;
    EXPECT_TRUE(WIFSIGNALED(signal | 0x80) && WTERMSIG(signal | 0x80) == signal);
  }
}

TEST(FailureKind, WhoeverWasToldToEndHasNotFailed) {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGTERM, SIGXCPU}) {
    EXPECT_TRUE(is_ended_on_request(failure(signal))) << signal;
    EXPECT_TRUE(is_ended_on_request(failure((128 + signal) << 8))) << signal;  // a shell passes it on
    EXPECT_FALSE(is_ended_on_request(failure(signal << 8))) << signal;         // an exit code
  }
  for (const int signal : {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGALRM}) {
    EXPECT_FALSE(is_ended_on_request(failure(signal))) << signal;
  }
  EXPECT_TRUE(is_killed(failure((128 + SIGKILL) << 8)));
  EXPECT_FALSE(is_killed(failure(SIGSEGV)));
}

TEST(FailureKind, OurOwnCommandReportsForItself) {
  const auto reports = [](const std::vector<std::string>& command) { return reports_for_itself(command); };
  EXPECT_TRUE(reports({"slurm-bootstrap", "check"}));
  EXPECT_TRUE(reports({"/usr/bin/slurm-bootstrap"}));
  EXPECT_FALSE(reports({"slurm-bootstrap", "run", "./train"})) << "it becomes the user's program";
  EXPECT_FALSE(reports({}));
  for (const auto* program : {"", "python3", "slurm-bootstrap-rendezvous", "/slurm-bootstrap/train", "train.py"}) {
    EXPECT_FALSE(reports({program})) << program;
  }
}

}  // namespace
}  // namespace bootstrap
