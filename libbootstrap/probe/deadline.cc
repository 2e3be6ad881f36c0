// Waits that end at a deadline: for a descriptor, for a time, and for work that may block forever.
// SPDX-License-Identifier: Apache-2.0
#include "probe/deadline.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace bootstrap {

bool poll_until(int descriptor, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Deadline::clock::now()).count();
    if (left <= 0) return false;
    pollfd ready{descriptor, events, 0};
    const int count = ::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left, INT32_MAX)));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
}

bool send_all(int socket, std::string_view text, Deadline deadline) {
  while (!text.empty()) {
    const auto size = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size > 0) text.remove_prefix(static_cast<std::size_t>(size));
    const bool is_full = size < 0 && (errno == EAGAIN || errno == EINTR);
    if (size <= 0 && !(is_full && poll_until(socket, POLLOUT, deadline))) return false;
  }
  return true;
}

int start_thread(pthread_t& thread, void* (*run)(void*), void* argument) {
  constexpr std::size_t kMostStack = 8 << 20;
  pthread_attr_t attributes;
  if (const int error = pthread_attr_init(&attributes); error != 0) return error;
  std::size_t stack = 0;
  if (pthread_attr_getstacksize(&attributes, &stack) == 0 && stack > kMostStack) {
    (void)pthread_attr_setstacksize(&attributes, kMostStack);
  }
  // A thread begins with its creator's mask.
  sigset_t all;
  sigset_t before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread, &attributes, run, argument);
  (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
  (void)pthread_attr_destroy(&attributes);
  return error;
}

// A condition of pthread's: with glibc before 2.30 the standard library's waits by the wall clock, and would wait
// longer after that clock is set back.
struct AbandonableThread::State {
  std::function<void()> work;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t ended{};
  bool has_ended = false;
  pthread_t thread{};
  bool is_joined = true;  // or was not started

  State() {
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&ended, &attributes);
    (void)pthread_condattr_destroy(&attributes);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (!is_joined) (void)pthread_detach(thread);
    (void)pthread_cond_destroy(&ended);
  }

  void run() {
    try {
      work();
    } catch (const std::exception&) {
      // Out of memory: the work has no result, and the program goes on.
    }
    work = nullptr;  // frees what it owns before the end is visible
    (void)pthread_mutex_lock(&mutex);
    has_ended = true;
    (void)pthread_cond_broadcast(&ended);
    (void)pthread_mutex_unlock(&mutex);
  }

  // steady_clock is CLOCK_MONOTONIC.
  bool wait_until(Deadline deadline) {
    const auto since = deadline.time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
    const timespec until{static_cast<time_t>(seconds.count()),
                         static_cast<long>(std::chrono::nanoseconds(since - seconds).count())};
    (void)pthread_mutex_lock(&mutex);
    while (!has_ended && pthread_cond_timedwait(&ended, &mutex, &until) == 0) continue;
    const bool result = has_ended;
    (void)pthread_mutex_unlock(&mutex);
    return result;
  }

  static void* run_owned(void* owner) {
    const std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(owner));
    (*state)->run();
    return nullptr;
  }
};

Status AbandonableThread::start(std::function<void()> work) {
  auto state = std::make_shared<State>();
  state->work = std::move(work);
  auto owner = std::make_unique<std::shared_ptr<State>>(state);
  if (const int error = start_thread(state->thread, State::run_owned, owner.get()); error != 0) {
    return fail(ErrorCode::kUnavailable, cat({"cannot start a thread (error ", std::to_string(error),
                                              "); raise the limit of processes (ulimit -u)"}));
  }
  (void)owner.release();  // the thread owns it now
  state->is_joined = false;
  state_ = std::move(state);
  return {};
}

bool AbandonableThread::wait_until(Deadline deadline) const {
  if (!state_) return true;
  if (!state_->wait_until(deadline)) return false;
  // Joined, so that the thread is gone when the caller returns.
  if (!std::exchange(state_->is_joined, true)) (void)pthread_join(state_->thread, nullptr);
  return true;
}

}  // namespace bootstrap
