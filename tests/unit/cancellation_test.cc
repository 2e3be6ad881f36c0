// A thread of the program that is cancelled in a call: the call returns as without it, and the thread ends after it.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <memory>
#include <thread>

#include "api/job.h"
#include "bootstrap/bootstrap.h"
#include "comm/process/sleep_for.h"
#include "exchange_double.h"
#include "in_child.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;

// A round in which the thread reaches a cancellation point after it has been cancelled.
class SlowExchange : public Exchange {
 public:
  explicit SlowExchange(std::atomic<bool>& is_inside) : is_inside_(is_inside) {}
  Result<AllgatherResult> run(const Allgather& /*round*/) override {
    is_inside_ = true;
    sleep_for(milliseconds(300));
    return AllgatherResult();
  }
  Result<RankWords> pass_word(const std::optional<RankWord>& /*own*/, const std::vector<Rank>& /*asked*/) override {
    return RankWords();
  }
  std::string engine() const override { return "slow"; }

 private:
  std::atomic<bool>& is_inside_;
};

struct Calls {
  bootstrap_t job;
  std::atomic<bool> is_inside{false};
  std::atomic<int> status{-1};
  std::atomic<bool> has_gone_on{false};
};

void* call_barrier(void* pointer) {
  auto& calls = *static_cast<Calls*>(pointer);
  calls.status = bootstrap_barrier(&calls.job);
  ::pthread_testcancel();
  calls.has_gone_on = true;
  return nullptr;
}

void expect_end(bool is_cancelled) {
  Calls calls;
  calls.job.layout = layout_of({1});
  calls.job.place = calls.job.layout.place(0);
  calls.job.timeout = std::chrono::seconds(20);
  calls.job.exchange = std::make_unique<SlowExchange>(calls.is_inside);
  pthread_t thread{};
  ASSERT_EQ(::pthread_create(&thread, nullptr, call_barrier, &calls), 0);
  while (!calls.is_inside) std::this_thread::yield();
  EXPECT_EQ(is_cancelled ? ::pthread_cancel(thread) : 0, 0);
  void* result = nullptr;
  ASSERT_EQ(::pthread_join(thread, &result), 0);
  EXPECT_EQ(calls.status, BOOTSTRAP_OK);
  EXPECT_EQ(result == PTHREAD_CANCELED, is_cancelled) << "as soon as the call has returned";
  EXPECT_EQ(calls.has_gone_on, !is_cancelled);
}

TEST(Cancellation, WaitsForTheEndOfTheCall) {
  in_child([] { expect_end(true); });
  in_child([] { expect_end(false); });
}

}  // namespace
}  // namespace bootstrap
