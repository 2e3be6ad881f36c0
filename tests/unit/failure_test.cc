// Failed tasks: their text is read as it was written, forgeries are refused, and the message names the right task.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/failure.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "core/util/records.h"

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

TEST(FailureText, IsReadAsItWasWritten) {
  for (const std::int32_t status : {256, 11, 9, 0x8b, 255 << 8, 0}) {
    for (const bool is_out_of_memory : {false, true}) {
      const auto sent = failure(status, is_out_of_memory);
      EXPECT_EQ(read_report<Failure>(write_report(sent, kToken), kToken), sent);
    }
  }
  auto refused = failure(256);
  refused.is_refused = true;
  auto outlived = failure(SIGKILL);
  outlived.is_outlived = true;
  EXPECT_EQ(read_report<Failure>(write_report(outlived, kToken), kToken), outlived);
  EXPECT_EQ(read_report<Failure>(write_report(refused, kToken), kToken), refused);
  const FailureAddress address{43210, kToken};
  EXPECT_EQ(read_failure_address(write_record(address)), address);
}

TEST(FailureText, ALineWithAnotherTokenIsNotRead) {
  const auto text = write_report(failure(256), kToken);
  EXPECT_TRUE(read_report<Failure>(text, kToken));
  EXPECT_FALSE(read_report<Failure>(text, kToken + 1));
  EXPECT_FALSE(read_report<Failure>(write_report(failure(256), 0), kToken));
}

// The kernel's filter compares words of four bytes.
TEST(FailureText, BeginsWithAPrefixOfOneLength) {
  for (const auto token : {kToken, std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX}) {
    EXPECT_EQ(failure_prefix(token).size(), 36U) << token;
    EXPECT_EQ(failure_prefix(token).size() % 4, 0U);
    EXPECT_TRUE(write_report(failure(256), token).starts_with(failure_prefix(token)));
  }
}

TEST(FailureText, ForgedTextDoesNotReachTheTerminal) {
  const std::string prefix = "bootstrap-failure-4 fedcba9876543210";
  EXPECT_TRUE(read_report<Failure>(prefix + "5\t1\tnode002\t256\t3249\t0\t0\t0\t", kToken));
  for (const auto* rest : {"5\t1\tnode\033[31m\t256\t3249\t0\t0\t0\t", "5\t1\tnode002\t256\t0\t0\t0\t",
                           "5\t1\tnode002\t256\t3249\t0\t0\t0\tx", "5\t1\tnode002\t256\t3249\t0\t0\t2\t",
                           "-5\t1\tnode002\t256\t3249\t0\t0\t0\t", "5\t1\t\xc3\xa4\t256\t3249\t0\t0\t0\t", ""}) {
    EXPECT_FALSE(read_report<Failure>(prefix + rest, kToken)) << rest;
  }
  EXPECT_FALSE(
      read_report<Failure>(prefix + "5\t1\t" + std::string(kMaxReportText, 'n') + "\t256\t1\t0\t0\t0\t", kToken));
  for (const auto* text :
       {"", "\t", "1", "0\t1\t", "1023\t1\t", "70000\t1\t", "2000\txyz\t", "2000\t", "-1\t1\t", "2000.1"}) {
    EXPECT_FALSE(read_failure_address(text)) << text;
  }
}

TEST(FailureWords, NameTheTaskTheTimeAndTheCause) {
  EXPECT_EQ(failing_task(failure(1 << 8)), "task 5 (node002, local rank 1)");
  EXPECT_EQ(failure_time(failure(1 << 8)), "3.2 s after the step began");
  EXPECT_EQ(exit_cause(failure(1 << 8)), "exit code 1");
  EXPECT_EQ(exit_cause(failure(11)), "killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(exit_cause(failure(40)), "killed by signal 40");
}

// Any process can send SIGKILL; only the kernel knows if memory was the reason.
TEST(FailureWords, NameMemoryOnlyIfTheKernelDoes) {
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

TEST(FailureKind, ATaskThatASignalAskedToEndHasNotFailed) {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGTERM, SIGXCPU}) {
    EXPECT_TRUE(is_ended_on_request(failure(signal))) << signal;
    EXPECT_TRUE(is_ended_on_request(failure((128 + signal) << 8))) << signal;  // a shell's status for a signal
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

constexpr std::int32_t kExit1 = 1 << 8;
constexpr std::int32_t kExit2 = 2 << 8;
constexpr std::int32_t kExit3 = 3 << 8;
constexpr std::int32_t kExit4 = 4 << 8;

struct Event {
  Rank rank;
  std::int32_t status;
  std::uint64_t at;
  bool is_out_of_memory = false;
  bool is_outlived = false;
};

FailureHistory history(std::uint32_t tasks, const std::vector<Event>& events) {
  FailureHistory history(tasks);
  for (const auto& event : events) {
    history.add({.rank = event.rank,
                 .local_rank = event.rank % 2,
                 .host = event.rank < 2 ? "node001" : "node002",
                 .wait_status = event.status,
                 .milliseconds = event.at,
                 .is_out_of_memory = event.is_out_of_memory,
                 .is_outlived = event.is_outlived},
                event.at);
  }
  return history;
}

TEST(FailureHistory, NamesTheTaskThatFailedByItself) {
  const std::string task0 = "task 0 (node001, local rank 0) failed first: ";
  const std::string task1 = "task 1 (node001, local rank 1) failed first: ";
  const std::string task2 = "task 2 (node002, local rank 0) failed first: ";
  const std::string killed = "killed by signal 9 (SIGKILL)";
  const std::string alike = "failed in the same way, task 2 (node002, local rank 0) first: exit code 2, 0.1 s after";
  const struct {
    const char* what;
    std::uint32_t tasks;
    std::vector<Event> events;
    std::string sentence;  // its beginning; empty: there is none
  } rows[] = {
      {"the first to arrive",
       4,
       {{3, kExit3, 3200}, {0, kExit1, 3300}, {1, SIGABRT, 3350}},
       "task 3 (node002, local rank 1) failed first: exit code 3, 3.2 s after the step began"},
      {"none if all fail alike",
       4,
       {{2, kExit2, 100}, {0, kExit2, 120}, {1, kExit2, 190}, {3, kExit2, 260}},
       "all 4 tasks " + alike},
      {"none if most fail alike",
       4,
       {{2, kExit2, 100}, {0, kExit2, 120}, {3, SIGKILL, 150}, {1, kExit2, 190}},
       "3 of 4 tasks " + alike},
      // The controls of these two rows: each differs from them in one field.
      {"another code", 4, {{2, kExit2, 100}, {0, kExit1, 120}, {1, kExit2, 190}}, task2 + "exit code 2"},
      {"ahead of the others", 4, {{2, kExit2, 100}, {0, kExit2, 220}, {1, kExit2, 230}}, task2 + "exit code 2"},
      {"one is late", 4, {{2, kExit2, 100}, {0, kExit2, 120}, {1, kExit2, 1200}}, task2 + "exit code 2"},
      {"not most of them", 4, {{2, kExit2, 100}, {0, kExit2, 120}}, task2 + "exit code 2"},
      {"a task counts once", 2, {{0, kExit2, 10}, {0, kExit2, 11}}, task0},
      {"a signal asked the others to end",
       4,
       {{0, SIGTERM, 10}, {1, (128 + SIGTERM) << 8, 11}, {2, kExit1, 20}},
       task2},
      {"a signal asked all to end", 4, {{0, SIGTERM, 10}, {1, SIGINT, 11}}, ""},
      {"all were killed", 4, {{0, SIGKILL, 10}, {1, SIGKILL, 11}, {2, SIGKILL, 12}, {3, SIGKILL, 13}}, ""},
      {"the other one had ended without an error", 2, {{1, SIGKILL, 10}}, ""},
      {"the others outlived it", 4, {{1, SIGKILL, 10}, {0, kExit1, 400}, {2, kExit1, 410}}, task1 + killed + ", 0.0 s"},
      {"Slurm's PMIx killed its neighbours a moment later",
       4,
       {{1, SIGKILL, 10, false, true}, {0, SIGKILL, 30}, {2, SIGKILL, 31}, {3, SIGKILL, 31}},
       task1 + killed},
      {"srun killed the others",
       4,
       {{1, kExit3, 10}, {0, SIGKILL, 30}, {2, SIGKILL, 31}, {3, SIGKILL, 31}},
       task1 + "exit code 3"},
      {"memory, and srun killed the others",
       2,
       {{1, SIGKILL, 10, true}, {0, SIGKILL, 30}},
       task1 + killed + ", after the kernel killed a process there because it was out of memory"},
      {"nothing failed", 4, {}, ""},
  };
  for (const auto& [what, tasks, events, sentence] : rows) {
    const auto step = history(tasks, events);
    EXPECT_EQ(step.sentence(false).substr(0, sentence.size()), sentence) << what;
    EXPECT_EQ(step.sentence(false).empty(), sentence.empty()) << what << step.sentence(false);
    if (sentence.empty()) continue;
    EXPECT_EQ(step.sentence(true), step.sentence(false)) << what;
  }
}

TEST(FailureHistory, NamesAKilledTaskIfOthersStillRun) {
  EXPECT_TRUE(
      history(2, {{1, SIGKILL, 10}}).sentence(true).starts_with("task 1 (node001, local rank 1) failed first: "));
}

TEST(FailureHistory, KnowsWhenTheFirstFailureArrived) {
  EXPECT_EQ(history(4, {{0, SIGTERM, 10}, {3, kExit3, 3200}, {0, kExit1, 3300}}).first_arrival(), 3200U);
  EXPECT_FALSE(history(4, {{0, SIGTERM, 10}, {1, SIGINT, 11}}).first_arrival());
}

TEST(FailureHistory, NamesTasksThatEndedBeforeAndForWhichOthersMayHaveWaited) {
  constexpr std::string_view kFirst =
      "task 3 (node002, local rank 1) failed first: exit code 4, 2.1 s after the step began";
  const auto one = history(4, {{1, 0, 100}, {3, kExit4, 2100}, {0, 0, 2200}});
  EXPECT_EQ(one.sentence(false),
            std::string(kFirst) + "; task 1 (node001, local rank 1) ended before that with exit code 0");
  EXPECT_EQ(one.first_arrival(), 2100U);
  const auto two = history(4, {{1, 0, 100}, {2, 0, 200}, {3, kExit4, 2100}});
  EXPECT_EQ(two.sentence(false), std::string(kFirst) + "; tasks 1, 2 ended before that with exit code 0");
  FailureHistory many(32);
  for (Rank rank = 0; rank < 11; ++rank) many.add({.rank = rank, .host = "node001"}, rank);
  many.add({.rank = 12, .host = "node001", .wait_status = kExit4}, 100);
  EXPECT_TRUE(
      many.sentence(false).ends_with("; tasks 0, 1, 2, 3, 4, 5, 6, 7 and 3 more ended before that with exit code 0"))
      << many.sentence(false);
  EXPECT_EQ(history(4, {{1, 0, 100}}).sentence(false), "");
  EXPECT_FALSE(history(4, {{1, 0, 100}}).first_arrival());
}

TEST(FailureHistory, ATaskThatAnotherProcessEndedHasNotFailed) {
  auto step = history(4, {{2, kExit1, 10}});
  step.drop_all();
  step.add({.rank = 3, .host = "node002", .wait_status = kExit1}, 20);
  EXPECT_FALSE(step.first_arrival());
  EXPECT_EQ(step.sentence(true), "");
}

}  // namespace
}  // namespace bootstrap
