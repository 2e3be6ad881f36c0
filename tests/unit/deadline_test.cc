// Work that may never end: the caller waits until a deadline, and abandons it then without harm; so does who starts a
// helper process.
// SPDX-License-Identifier: Apache-2.0
#include "probe/deadline.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string_view>
#include <thread>

#include "comm/helper/helper_process.h"
#include "in_child.h"
#include "probe/files.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

TEST(PollUntil, EndsAtTheDeadlineWhateverIsThere) {
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
  EXPECT_TRUE(worker.wait_until(steady_clock::now()));  // nothing was begun
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

// What `ulimit -s` gives to all threads of a program that starts.
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

// This program as the helper: takes a byte from what is in the place of its socket.
__attribute__((constructor)) void run_as_helper(int count, char** words) {
  if (count != 2 || std::string_view(words[1]) != kHelperArgument) return;
  char byte = 0;
  ::_exit(::read(kHelperSocket, &byte, 1) == 1 ? 0 : 1);
}

// Without time to start one, no helper gets the program's own descriptor of that number in place of its socket.
TEST(HelperProcess, ThatIsLateDoesNotReadFromTheProgram) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer takes a clone(2) with shared memory for a fork, and then ignores synchronisation";
#endif
  in_child([] {
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ASSERT_EQ(::dup2(ends[0], kHelperSocket), kHelperSocket);  // without close-on-exec
    constexpr std::string_view kText = "abcdefghijklmnopqrst";
    ASSERT_EQ(::write(ends[1], kText.data(), kText.size()), static_cast<ssize_t>(kText.size()));
    for (std::size_t i = 0; i < kText.size(); ++i) {
      const auto helper = HelperProcess::start({}, std::chrono::steady_clock::now());
      ASSERT_FALSE(helper);
      EXPECT_EQ(helper.error().code, ErrorCode::kTimeout);
    }
    char left[kText.size() + 1] = {};
    EXPECT_EQ(::recv(kHelperSocket, left, sizeof left, MSG_DONTWAIT), static_cast<ssize_t>(kText.size())) << left;
  });
}

}  // namespace
}  // namespace bootstrap
