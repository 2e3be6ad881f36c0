// When ranks wait for the other nodes, how long, and by which age. SPDX-License-Identifier: Apache-2.0
#include "core/launch_wait.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "comm/launch_pause.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(LaunchWait, IsForReleasesThatLoseAndInDoubt) {
  Environment environment;
  EXPECT_TRUE(loses_early_messages(environment));
  environment.set("SLURM_JOB_START_TIME", "1795616689");
  EXPECT_FALSE(loses_early_messages(environment));
}

TEST(LaunchWait, ReadsTheStartOfAProcess) {
  EXPECT_EQ(start_ticks("406 (cat) R 403 403 393 0 -1 4194304 56 0 0 0 0 0 0 0 20 0 1 0 2708256 2703360 324 1"),
            2708256);
  EXPECT_EQ(start_ticks("4 (a) b (c) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 17"), 17);
  for (const auto* text :
       {"", "406", "406 (cat)", "406 (cat) R 403 403 393 0 -1", "4 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 x"}) {
    EXPECT_FALSE(start_ticks(text)) << text;
  }
}

milliseconds time_of_pause(milliseconds time_left) {
  const auto start = steady_clock::now();
  pause_for_launch(start + time_left);
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
}

// A child by fork starts anew, and so does its age; the age is found at the first call of a process.
int in_young_process(int (*work)()) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  (void)::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(LaunchPause, IsTheRestOfTheLaunchOnce) {
  EXPECT_EQ(in_young_process([] {
              std::this_thread::sleep_for(milliseconds(100));
              const auto first = time_of_pause(milliseconds(60000));
              if (first < milliseconds(150) || first > milliseconds(290)) return 1;
              return time_of_pause(milliseconds(60000)) < milliseconds(100) ? 0 : 2;
            }),
            0);
}

TEST(LaunchPause, LeavesHalfOfTheTimeToTheExchange) {
  EXPECT_EQ(in_young_process([] {
              const auto first = time_of_pause(milliseconds(100));
              return first >= milliseconds(50) && first < milliseconds(95) ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace bootstrap
