// The failures of a step: which one is the first, when none is, and when all tasks failed alike.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/failure.h"

#include <gtest/gtest.h>

#include <csignal>

namespace bootstrap {
namespace {

constexpr std::int32_t exit_status(int code) { return code << 8; }

struct Event {
  Rank rank;
  std::int32_t status;
  std::uint64_t at;
  bool is_out_of_memory = false;
  bool is_outlived = false;
};

FailureHistory history(std::uint32_t tasks, std::initializer_list<Event> events) {
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

TEST(FailureHistory, NamesTheFirstToArrive) {
  const auto step = history(4, {{3, exit_status(3), 3200}, {0, exit_status(1), 3300}, {1, SIGABRT, 3350}});
  EXPECT_EQ(step.first_arrival(), 3200U);
  EXPECT_EQ(step.sentence(false),
            "task 3 (node002, local rank 1) failed first: exit code 3, 3.2 s after the step began");
  EXPECT_EQ(step.sentence(true), step.sentence(false));
  EXPECT_EQ(history(4, {}).sentence(false), "");
  EXPECT_FALSE(history(4, {}).first_arrival());
}

TEST(FailureHistory, BlamesNobodyWhereAllFailAlike) {
  const auto all = history(
      4, {{2, exit_status(2), 100}, {0, exit_status(2), 120}, {1, exit_status(2), 190}, {3, exit_status(2), 260}});
  EXPECT_EQ(all.sentence(false),
            "all 4 tasks failed in the same way, task 2 (node002, local rank 0) first: exit code 2, 0.1 s after the "
            "step began");
  const auto most =
      history(4, {{2, exit_status(2), 100}, {0, exit_status(2), 120}, {3, SIGKILL, 150}, {1, exit_status(2), 190}});
  EXPECT_EQ(most.sentence(false),
            "3 of 4 tasks failed in the same way, task 2 (node002, local rank 0) first: exit code 2, 0.1 s after the "
            "step began");
}

// The controls of the test above: each differs from it in one thing.
TEST(FailureHistory, NamesTheOneThatIsNotLikeTheOthers) {
  const std::string named = "task 2 (node002, local rank 0) failed first: exit code 2";
  const auto other_code = history(4, {{2, exit_status(2), 100}, {0, exit_status(1), 120}, {1, exit_status(2), 190}});
  EXPECT_TRUE(other_code.sentence(false).starts_with(named)) << other_code.sentence(false);
  const auto ahead = history(4, {{2, exit_status(2), 100}, {0, exit_status(2), 220}, {1, exit_status(2), 230}});
  EXPECT_TRUE(ahead.sentence(false).starts_with(named)) << ahead.sentence(false);
  const auto late = history(4, {{2, exit_status(2), 100}, {0, exit_status(2), 120}, {1, exit_status(2), 1200}});
  EXPECT_TRUE(late.sentence(false).starts_with(named)) << late.sentence(false);
  const auto few = history(4, {{2, exit_status(2), 100}, {0, exit_status(2), 120}});
  EXPECT_TRUE(few.sentence(false).starts_with(named)) << few.sentence(false);
}

TEST(FailureHistory, ATaskThatIsToldToEndHasNotFailed) {
  const auto step = history(4, {{0, SIGTERM, 10}, {1, exit_status(128 + SIGTERM), 11}, {2, exit_status(1), 20}});
  EXPECT_TRUE(step.sentence(false).starts_with("task 2 ")) << step.sentence(false);
  EXPECT_FALSE(history(4, {{0, SIGTERM, 10}, {1, SIGINT, 11}}).first_arrival());
}

TEST(FailureHistory, SaysNothingWhereAllWereKilled) {
  EXPECT_EQ(history(4, {{0, SIGKILL, 10}, {1, SIGKILL, 11}, {2, SIGKILL, 12}, {3, SIGKILL, 13}}).sentence(false), "");
  // One rank of two had ended well before somebody killed the step.
  EXPECT_EQ(history(2, {{1, SIGKILL, 10}}).sentence(false), "");
}

TEST(FailureHistory, NamesAKilledTaskThatTheOthersOutlived) {
  const std::string named = "task 1 (node001, local rank 1) failed first: killed by signal 9 (SIGKILL), 0.0 s";
  const auto outlived = history(4, {{1, SIGKILL, 10}, {0, exit_status(1), 400}, {2, exit_status(1), 410}});
  EXPECT_TRUE(outlived.sentence(false).starts_with(named)) << outlived.sentence(false);
  EXPECT_TRUE(history(2, {{1, SIGKILL, 10}}).sentence(true).starts_with(named));
}

// PMIx of Slurm kills the others of a step in which one was killed.
TEST(FailureHistory, NamesAKilledTaskWhoseNeighboursWentOnAMoment) {
  const auto step = history(4, {{1, SIGKILL, 10, false, true}, {0, SIGKILL, 30}, {2, SIGKILL, 31}, {3, SIGKILL, 31}});
  EXPECT_TRUE(step.sentence(false).starts_with("task 1 (node001, local rank 1) failed first: killed by signal 9 "))
      << step.sentence(false);
}

TEST(FailureHistory, NamesTheFailureBehindWhichSrunKilledTheOthers) {
  const auto step = history(4, {{1, exit_status(3), 10}, {0, SIGKILL, 30}, {2, SIGKILL, 31}, {3, SIGKILL, 31}});
  EXPECT_TRUE(step.sentence(false).starts_with("task 1 ")) << step.sentence(false);
  const auto memory = history(2, {{1, SIGKILL, 10, true}, {0, SIGKILL, 30}});
  EXPECT_NE(memory.sentence(false).find("out of memory"), std::string::npos) << memory.sentence(false);
}

TEST(FailureHistory, ATaskCountsOnce) {
  const auto step = history(2, {{0, exit_status(2), 10}, {0, exit_status(2), 11}});
  EXPECT_TRUE(step.sentence(false).starts_with("task 0 ")) << step.sentence(false);
}

TEST(FailureHistory, NamesThoseThatEndedBeforeAndForWhomOthersMayHaveWaited) {
  constexpr std::string_view kFirst =
      "task 3 (node002, local rank 1) failed first: exit code 4, 2.1 s after the step began";
  const auto one = history(4, {{1, 0, 100}, {3, exit_status(4), 2100}, {0, 0, 2200}});
  EXPECT_EQ(one.sentence(false),
            std::string(kFirst) + "; task 1 (node001, local rank 1) ended before that with exit code 0");
  EXPECT_EQ(one.first_arrival(), 2100U);
  const auto two = history(4, {{1, 0, 100}, {2, 0, 200}, {3, exit_status(4), 2100}});
  EXPECT_EQ(two.sentence(false), std::string(kFirst) + "; tasks 1, 2 ended before that with exit code 0");
  FailureHistory many(32);
  for (Rank rank = 0; rank < 11; ++rank) many.add({.rank = rank, .host = "node001"}, rank);
  many.add({.rank = 12, .host = "node001", .wait_status = exit_status(4)}, 100);
  EXPECT_TRUE(
      many.sentence(false).ends_with("; tasks 0, 1, 2, 3, 4, 5, 6, 7 and 3 more ended before that with exit code 0"))
      << many.sentence(false);
  EXPECT_EQ(history(4, {{1, 0, 100}}).sentence(false), "");
  EXPECT_FALSE(history(4, {{1, 0, 100}}).first_arrival());
}

TEST(FailureHistory, WhatSomebodyElseEndedHasNotFailed) {
  auto step = history(4, {{2, exit_status(1), 10}});
  step.drop_all();
  step.add({.rank = 3, .host = "node002", .wait_status = exit_status(1)}, 20);
  EXPECT_FALSE(step.first_arrival());
  EXPECT_EQ(step.sentence(true), "");
}

}  // namespace
}  // namespace bootstrap
