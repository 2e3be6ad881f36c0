// The first failure: what the nodes tell srun comes back the same, forgeries do not count, and the sentence.
// SPDX-License-Identifier: Apache-2.0
#include "core/failure.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace bootstrap {
namespace {

constexpr std::uint64_t kMark = 0xfedcba9876543210U;

Failure failure(std::int32_t status) {
  return {.step = "12.0", .rank = 5, .local_rank = 1, .host = "node002", .wait_status = status, .milliseconds = 3249};
}

TEST(FailureText, ComesBackTheSame) {
  for (const std::int32_t status : {256, 11, 9, 0x8b, 255 << 8, -1}) {
    EXPECT_EQ(read_failure(write_failure(failure(status), kMark), kMark), failure(status));
  }
  const FailureAddress address{43210, kMark};
  EXPECT_EQ(read_failure_address(write_failure_address(address)), address);
  EXPECT_EQ(write_failure_address(address), "43210.fedcba9876543210");
}

TEST(FailureText, OnlyWhoKnowsTheMarkIsHeard) {
  const auto text = write_failure(failure(256), kMark);
  EXPECT_TRUE(read_failure(text, kMark));
  EXPECT_FALSE(read_failure(text, kMark + 1));
  EXPECT_FALSE(read_failure(write_failure(failure(256), 0), kMark));
}

TEST(FailureText, ForgedTextDoesNotReachTheTerminal) {
  const std::string mark = "bootstrap-failure-1 fedcba9876543210 ";
  EXPECT_TRUE(read_failure(mark + "12.0 5 1 node002 256 3249", kMark));
  for (const auto* rest : {"12.0 5 1 node\033[31m 256 3249", "12.0 5 1 node002 256", "12.0 5 1 node002 256 3249 x",
                           "12.0 -5 1 node002 256 3249", "12.0 5 1 \xc3\xa4 256 3249", "12.0 99999999 1 n 256 1",
                           "12.0 5 1  256 3249", ""}) {
    EXPECT_FALSE(read_failure(mark + rest, kMark)) << rest;
  }
  EXPECT_FALSE(read_failure(mark + "12.0 5 1 " + std::string(kMaxFailureText, 'n') + " 256 1", kMark));
  for (const auto* text : {"", ".", "1", "0.1", "70000.1", "1.xyz", "1.", "-1.1", "1.11111111111111111"}) {
    EXPECT_FALSE(read_failure_address(text)) << text;
  }
}

TEST(FailureSentence, SaysWhoAndWhy) {
  EXPECT_EQ(
      failure_sentence(failure(1 << 8)),
      "StepId=12.0: rank 5 (node002, local rank 1) was the first to fail: exit code 1, 3.2 s after the step began");
  EXPECT_NE(failure_sentence(failure(11)).find("killed by signal 11 (SIGSEGV), 3.2 s"), std::string::npos);
  EXPECT_NE(failure_sentence(failure(9)).find("(SIGKILL), which is what happens when memory runs out"),
            std::string::npos);
  EXPECT_NE(failure_sentence(failure(40)).find("killed by signal 40, 3.2 s"), std::string::npos);
}

TEST(FailureSentence, NumbersAreThoseOfTheSystem) {
  for (int signal = 1; signal < 32; ++signal) {
    const auto name = std::string("(SIG") + ::sigabbrev_np(signal) + ")";
    const auto sentence = failure_sentence(failure(signal | 0x80));  // 0x80: with a core file
    const bool has_other_name = signal == SIGPOLL;
    EXPECT_TRUE(has_other_name || sentence.find(name) != std::string::npos) << sentence << " " << name;
    EXPECT_TRUE(WIFSIGNALED(signal | 0x80) && WTERMSIG(signal | 0x80) == signal);
  }
  EXPECT_TRUE(is_told_to_end(SIGTERM));
  EXPECT_FALSE(is_told_to_end(SIGKILL));
  EXPECT_FALSE(is_told_to_end(SIGTERM << 8));  // an exit code
}

}  // namespace
}  // namespace bootstrap
