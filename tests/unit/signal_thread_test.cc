// A process in which one thread waits for signals, as in srun: whether it was sent one.
// SPDX-License-Identifier: Apache-2.0
#include "probe/signal_thread.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>

#include "in_child.h"

namespace bootstrap {
namespace {

constexpr int kWaits = 500;  // of 10 ms

void rest() { (void)::poll(nullptr, 0, 10); }

void* wait_for_signals(void* /*argument*/) {
  sigset_t set;
  ::sigfillset(&set);
  for (int signal = 0;;) (void)::sigwait(&set, &signal);
}

bool find(SignalThread& thread) {
  for (int i = 0; i < kWaits && !thread.find(); ++i) rest();
  return thread.find();
}

// 0: as it should be.
int signals_are_seen() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  SignalThread none("/proc/self/task/");
  if (none.find() || none.was_signalled()) return 1;
  pthread_t waiting{};
  if (::pthread_create(&waiting, nullptr, wait_for_signals, nullptr) != 0) return 2;
  for (const int signal : {SIGTERM, SIGINT, SIGALRM, SIGCONT}) {
    SignalThread thread("/proc/self/task/");
    if (!find(thread)) return 3;
    for (int i = 0; i < 5; ++i) rest();  // what goes on elsewhere is no signal
    if (thread.was_signalled()) return 4;
    ::kill(::getpid(), signal);
    for (int i = 0; i < kWaits && !thread.was_signalled(); ++i) rest();
    if (!thread.was_signalled()) return 5;
  }
  return 0;
}

TEST(SignalThread, SeesWhatTheProcessIsSent) {
  in_child([] { EXPECT_EQ(signals_are_seen(), 0); });
}

TEST(SignalThread, KnowsNothingOfAProcessThatIsGone) {
  SignalThread thread("/nonexistent/");
  EXPECT_FALSE(thread.find());
  EXPECT_FALSE(thread.was_signalled());
}

}  // namespace
}  // namespace bootstrap
