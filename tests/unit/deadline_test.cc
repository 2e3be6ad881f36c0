// Work that may never end: the caller waits until a deadline, and then abandons it without harm.
// SPDX-License-Identifier: Apache-2.0
#include "probe/deadline.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "probe/files.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

TEST(PollUntil, EndsAtTheDeadlineAlsoIfBytesAreReady) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Descriptor output(ends[0]);
  const Descriptor input(ends[1]);
  EXPECT_FALSE(poll_until(output.get(), POLLIN, steady_clock::now() + milliseconds(5)));
  ASSERT_EQ(::write(input.get(), "x", 1), 1);
  EXPECT_TRUE(poll_until(output.get(), POLLIN, steady_clock::now() + seconds(10)));
  EXPECT_TRUE(poll_until(output.get(), POLLIN, Deadline::max()));
  EXPECT_FALSE(poll_until(output.get(), POLLIN, steady_clock::now()));
}

TEST(AbandonableThread, IsWaitedForUntilItEnds) {
  AbandonableThread worker;
  EXPECT_TRUE(worker.wait_until(steady_clock::now()));  // no work was begun
  std::atomic<bool> is_done = false;
  ASSERT_TRUE(worker.start([&] {
    std::this_thread::sleep_for(milliseconds(20));
    is_done = true;
  }));
  EXPECT_TRUE(worker.wait_until(steady_clock::now() + seconds(10)));
  EXPECT_TRUE(is_done);
}

TEST(AbandonableThread, IsGivenUpAtTheDeadlineAndOwnsWhatItUses) {
  auto gate = std::make_shared<std::atomic<bool>>(false);
  auto value = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = value;
  AbandonableThread worker;
  ASSERT_TRUE(worker.start([gate, value = std::move(value)] {
    while (!*gate) std::this_thread::sleep_for(milliseconds(1));
  }));
  EXPECT_FALSE(worker.wait_until(steady_clock::now() + milliseconds(30)));
  EXPECT_FALSE(watched.expired());
  *gate = true;
  EXPECT_TRUE(worker.wait_until(steady_clock::now() + seconds(10)));
  EXPECT_TRUE(watched.expired());  // destroyed before the thread's end is visible
}

// The stack of all threads of a program, as `ulimit -s` sets it.
TEST(AbandonableThread, StartsAlsoWhereTheUserWantsMoreStackThanThereIs) {
  pthread_attr_t users;
  ASSERT_EQ(pthread_getattr_default_np(&users), 0);
  std::size_t before = 0;
  ASSERT_EQ(pthread_attr_getstacksize(&users, &before), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&users, std::size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&users), 0);
  AbandonableThread worker;
  const auto started = worker.start([] {});
  ASSERT_EQ(pthread_attr_setstacksize(&users, before), 0);
  ASSERT_EQ(pthread_setattr_default_np(&users), 0);
  (void)pthread_attr_destroy(&users);
  EXPECT_TRUE(started) << started.error().message;
  EXPECT_TRUE(worker.wait_until(steady_clock::now() + seconds(10)));
}

TEST(AbandonableThread, GetsNoSignalsAndLeavesTheCallersMaskAlone) {
  sigset_t before;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &before), 0);
  sigset_t inside{};
  AbandonableThread worker;
  ASSERT_TRUE(worker.start([&] { (void)pthread_sigmask(SIG_SETMASK, nullptr, &inside); }));
  ASSERT_TRUE(worker.wait_until(steady_clock::now() + seconds(10)));
  sigset_t after;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &after), 0);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) {
    EXPECT_EQ(sigismember(&inside, number), 1) << number;
    EXPECT_EQ(sigismember(&after, number), sigismember(&before, number)) << number;
  }
}

}  // namespace
}  // namespace bootstrap
