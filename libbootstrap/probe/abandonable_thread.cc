// A piece of work that may block for ever, done by a thread of its own, so that the caller can stop waiting for it.
// SPDX-License-Identifier: Apache-2.0
#include "probe/abandonable_thread.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "core/util/text.h"

namespace bootstrap {

struct AbandonableThread::State {
  std::function<void()> work;
  std::mutex mutex;
  std::condition_variable changed;
  bool has_ended = false;
  pthread_t thread{};
  bool is_joined = true;  // or was not started

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (!is_joined) (void)pthread_detach(thread);
  }
};

namespace {

extern "C" void* run_worker(void* argument) {
  const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

// pthread_create copies the mask of the caller: the program's signals stay with the program's threads, and what
// libraries start from this thread inherits the same.
int create_without_signals(pthread_t& thread, void* body) {
  sigset_t all;
  sigset_t before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread, nullptr, run_worker, body);
  (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace

Status AbandonableThread::start(std::function<void()> work) {
  auto state = std::make_shared<State>();
  state->work = std::move(work);
  auto body = std::make_unique<std::function<void()>>([state] {
    try {
      state->work();
    } catch (const std::exception&) {
      // No memory: what was to be done is not done, and its result says so. The program is not to end for it.
    }
    state->work = nullptr;  // what it owns goes before anybody hears of the end
    const std::lock_guard lock(state->mutex);
    state->has_ended = true;
    state->changed.notify_all();
  });
  const int error = create_without_signals(state->thread, body.get());
  if (error != 0) {
    return fail(ErrorCode::kUnavailable, cat({"cannot start a thread (error ", std::to_string(error),
                                              "); raise the limit of processes (ulimit -u)"}));
  }
  (void)body.release();  // the thread has it now
  state->is_joined = false;
  state_ = std::move(state);
  return {};
}

bool AbandonableThread::wait_until(Deadline deadline) const {
  if (!state_) return true;
  std::unique_lock lock(state_->mutex);
  if (!state_->changed.wait_until(lock, deadline, [this] { return state_->has_ended; })) return false;
  // The program has no thread more when its call returns.
  if (!std::exchange(state_->is_joined, true)) (void)pthread_join(state_->thread, nullptr);
  return true;
}

}  // namespace bootstrap
