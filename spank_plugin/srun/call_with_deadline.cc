// A call of srun's that may take for ever, such as one of slurmctld or of a name server, given up after a time.
// SPDX-License-Identifier: Apache-2.0
#include "srun/call_with_deadline.h"

#include <pthread.h>
#include <semaphore.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <exception>

namespace bootstrap {
namespace {

struct DeadlineCall {
  explicit DeadlineCall(std::function<void()> given) : work(std::move(given)) { (void)::sem_init(&has_ended, 0, 0); }
  DeadlineCall(const DeadlineCall&) = delete;
  DeadlineCall& operator=(const DeadlineCall&) = delete;
  ~DeadlineCall() { (void)::sem_destroy(&has_ended); }

  std::function<void()> work;
  sem_t has_ended{};
};

// The caller and the thread share the call: whoever is the last frees it.
void* run(void* argument) {
  const std::unique_ptr<std::shared_ptr<DeadlineCall>> call(static_cast<std::shared_ptr<DeadlineCall>*>(argument));
  try {
    (*call)->work();
    (void)::sem_post(&(*call)->has_ended);
  } catch (const std::exception&) {
    // No memory: to the caller this is a call that does not end.
  }
  return nullptr;
}

// srun has a thread for its signals; none of them is for this one.
bool start(std::shared_ptr<DeadlineCall> call) {
  auto argument = std::make_unique<std::shared_ptr<DeadlineCall>>(std::move(call));
  sigset_t all;
  sigset_t before;
  (void)::sigfillset(&all);
  (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  const bool has_started = ::pthread_create(&thread, nullptr, run, argument.get()) == 0;
  (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!has_started) return false;
  (void)argument.release();
  (void)::pthread_detach(thread);
  return true;
}

timespec from_now(std::chrono::milliseconds time) {
  constexpr long kPerMillisecond = 1'000'000;
  constexpr long kPerSecond = 1'000'000'000;
  timespec at{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_sec += static_cast<time_t>(time.count() / 1000);
  at.tv_nsec += static_cast<long>(time.count() % 1000) * kPerMillisecond;
  if (at.tv_nsec >= kPerSecond) {
    at.tv_nsec -= kPerSecond;
    ++at.tv_sec;
  }
  return at;
}

}  // namespace

bool run_with_deadline(std::function<void()> work, std::chrono::milliseconds deadline) {
  if (deadline <= std::chrono::milliseconds(0)) return false;
  const auto call = std::make_shared<DeadlineCall>(std::move(work));
  if (!start(call)) return false;
  const auto until = from_now(deadline);
  int outcome = 0;
  while ((outcome = ::sem_clockwait(&call->has_ended, CLOCK_MONOTONIC, &until)) != 0 && errno == EINTR) {
  }
  return outcome == 0;
}

}  // namespace bootstrap
