// The C interface: in the process's own environment, with option structures of other headers, and with threads as
// ranks of an exchange.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "api/job.h"
#include "bootstrap/bootstrap.h"
#include "core/settings/variables.h"
#include "exchange_double.h"
#include "in_child.h"
#include "nccl_doubles.h"
#include "probe/deadline.h"
#include "step_environment.h"

extern "C" int c_header_opens_and_closes(void);

namespace bootstrap {
namespace {

class CApi : public testing::Test {
 protected:
  void enter(const Environment& environment) {
    ::clearenv();
    for (const auto& [name, value] : environment.all()) ::setenv(name.c_str(), value.c_str(), 1);
  }
  void TearDown() override { enter(before_); }

 private:
  Environment before_ = read_entries(environ, UnknownVariables::kKeep);
};

TEST_F(CApi, ReturnsTheValuesOfTheRank) {
  enter(two_by_two(3));
  bootstrap_t* job = nullptr;
  ASSERT_EQ(bootstrap_open(&job, nullptr), BOOTSTRAP_OK) << bootstrap_last_error();
  EXPECT_EQ(bootstrap_rank(job), 3);
  EXPECT_EQ(bootstrap_size(job), 4);
  EXPECT_EQ(bootstrap_local_rank(job), 1);
  EXPECT_EQ(bootstrap_local_size(job), 2);
  EXPECT_EQ(bootstrap_node_rank(job), 1);
  EXPECT_EQ(bootstrap_node_count(job), 2);
  EXPECT_EQ(bootstrap_cross_rank(job), 1);
  EXPECT_EQ(bootstrap_cross_size(job), 2);
  EXPECT_EQ(bootstrap_device(job), 1);
  EXPECT_STREQ(bootstrap_master_addr(job), "node001");
  EXPECT_EQ(bootstrap_master_port(job), 20444);
  bootstrap_close(job);
  enter(two_by_two(0));
  EXPECT_EQ(c_header_opens_and_closes(), 0 + 4 + 0 + 2 + 0 + 2 + 0 + 2 + 20444) << "the header is C99";
}

TEST_F(CApi, TheDeviceIsInTheListOfTheProcess) {
  const auto device = [this](const Environment& environment) {
    enter(environment);
    bootstrap_t* job = nullptr;
    EXPECT_EQ(bootstrap_open(&job, nullptr), BOOTSTRAP_OK) << bootstrap_last_error();
    const auto found = bootstrap_device(job);
    EXPECT_EQ(bootstrap_local_rank(job), 1);
    bootstrap_close(job);
    return found;
  };
  auto environment = two_by_two(3);
  EXPECT_EQ(device(environment), 1);
  environment.set("SLURM_BOOTSTRAP_GPU", "first");
  EXPECT_EQ(device(environment), 0);
  environment.set("SLURM_BOOTSTRAP_GPU", "off");
  EXPECT_EQ(device(environment), -1);
  environment.unset("SLURM_BOOTSTRAP_GPU");
  environment.set("CUDA_VISIBLE_DEVICES", "0");  // bound by Slurm, without the plugin
  EXPECT_EQ(device(environment), -1);
}

TEST_F(CApi, RefusesWithAReason) {
  enter({});
  bootstrap_t* job = reinterpret_cast<bootstrap_t*>(1);
  EXPECT_EQ(bootstrap_open(&job, nullptr), BOOTSTRAP_ERROR_MISSING);
  EXPECT_EQ(job, nullptr);
  EXPECT_NE(std::strstr(bootstrap_last_error(), "SLURM_JOB_ID is not set"), nullptr);

  auto environment = two_by_two();
  environment.set("MASTER_PORT", "http");
  enter(environment);
  EXPECT_EQ(bootstrap_open(&job, nullptr), BOOTSTRAP_OK) << "a value that is no port is replaced";
  bootstrap_close(job);
  environment.set("SLURM_STEP_NUM_TASKS", "9");
  enter(environment);
  EXPECT_EQ(bootstrap_open(&job, nullptr), BOOTSTRAP_ERROR_DISAGREEMENT);

  EXPECT_EQ(bootstrap_open(nullptr, nullptr), BOOTSTRAP_ERROR_INVALID);
  EXPECT_EQ(bootstrap_rank(nullptr), -1);
  EXPECT_EQ(bootstrap_device(nullptr), -1);
  EXPECT_EQ(bootstrap_master_addr(nullptr), nullptr);
  EXPECT_EQ(bootstrap_master_port(nullptr), -1);
  bootstrap_close(nullptr);
  EXPECT_EQ(bootstrap_version(), BOOTSTRAP_VERSION);
}

TEST_F(CApi, ACallWithoutAHandleIsRefused) {
  char byte = 0;
  ncclComm* comm = nullptr;
  const auto expect = [](bootstrap_status_t status, const char* call) {
    EXPECT_EQ(status, BOOTSTRAP_ERROR_INVALID) << call;
    EXPECT_EQ(std::string(bootstrap_last_error()).find(cat({"bootstrap: ", call, ": the handle"})), 0U);
  };
  expect(bootstrap_exchange(nullptr, &byte, 1, &byte), "bootstrap_exchange");
  expect(bootstrap_broadcast(nullptr, &byte, 1, 0), "bootstrap_broadcast");
  expect(bootstrap_barrier(nullptr), "bootstrap_barrier");
  expect(bootstrap_nccl_comm(nullptr, BOOTSTRAP_WORLD, nullptr, &comm), "bootstrap_nccl_comm");
}

bootstrap_t* open_handle = nullptr;
volatile std::sig_atomic_t rank_in_handler = -1;

TEST_F(CApi, ServesThreadsASignalHandlerAndAForkedChild) {
  enter(two_by_two(3));
  ASSERT_EQ(bootstrap_open(&open_handle, nullptr), BOOTSTRAP_OK) << bootstrap_last_error();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      EXPECT_STREQ(bootstrap_last_error(), "");
      bootstrap_t* own = nullptr;
      EXPECT_EQ(bootstrap_open(&own, nullptr), BOOTSTRAP_OK) << bootstrap_last_error();
      EXPECT_EQ(bootstrap_rank(own), bootstrap_rank(open_handle));
      EXPECT_STREQ(bootstrap_master_addr(own), bootstrap_master_addr(open_handle));
      EXPECT_EQ(bootstrap_exchange(own, nullptr, 1, nullptr), BOOTSTRAP_ERROR_INVALID);
      EXPECT_STREQ(bootstrap_last_error(), "bootstrap: StepId=12.0 rank 3: exchange of 1 bytes: a buffer is NULL");
      bootstrap_close(own);
    });
  }
  for (auto& thread : threads) thread.join();
  (void)std::signal(SIGUSR1, [](int) { rank_in_handler = bootstrap_rank(open_handle); });
  (void)std::raise(SIGUSR1);
  (void)std::signal(SIGUSR1, SIG_DFL);
  EXPECT_EQ(rank_in_handler, 3);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_right = bootstrap_rank(open_handle) == 3;
    bootstrap_close(open_handle);
    ::_exit(is_right && bootstrap_open(&open_handle, nullptr) == BOOTSTRAP_OK ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  bootstrap_close(open_handle);
}

TEST(Options, OfEachHeaderAreRead) {
  const bootstrap_comm_options_t defaults = BOOTSTRAP_COMM_OPTIONS_INIT;
  const auto read = [&](const bootstrap_comm_options_t* given) {
    return api::read_options(given, defaults, "bootstrap_comm_options_t");
  };
  ASSERT_TRUE(read(nullptr));
  EXPECT_EQ(read(nullptr)->device, -1) << "the default";

  const bootstrap_comm_options_t older{offsetof(bootstrap_comm_options_t, roots), 1234, 77, 88, 99, nullptr};
  const auto options = succeeded(read(&older));
  EXPECT_EQ(options->timeout_ms, 1234);
  EXPECT_EQ(options->roots, 0);
  EXPECT_EQ(options->device, -1);
  EXPECT_EQ(options->nonblocking, 0);

  alignas(bootstrap_comm_options_t) unsigned char memory[sizeof(bootstrap_comm_options_t) + 8] = {};
  auto* newer = new (memory) bootstrap_comm_options_t(defaults);
  newer->struct_size = sizeof memory;
  newer->roots = 3;
  ASSERT_TRUE(read(newer));
  EXPECT_EQ(read(newer)->roots, 3);
  memory[sizeof(bootstrap_comm_options_t)] = 1;  // a member that this version does not know
  ASSERT_FALSE(read(newer));
  EXPECT_EQ(read(newer).error().code, ErrorCode::kUnsupported);

  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{1} << 40}) {
    bootstrap_comm_options_t given = defaults;
    given.struct_size = size;
    EXPECT_FALSE(read(&given)) << size << " is no size";
  }
}

struct Answer {
  bootstrap_status_t status = BOOTSTRAP_OK;
  std::string data;
};

// Each rank passes its own letter, and roots[rank] as the root.
std::vector<Answer> broadcast(const std::vector<int>& roots, std::size_t bytes = 4) {
  std::vector<Answer> answers(3);
  for_each_rank({2, 1}, [&](bootstrap_t& job, Rank rank) {
    auto& answer = answers[rank];
    answer.data.assign(4, static_cast<char>('a' + rank));
    answer.status = bootstrap_broadcast(&job, answer.data.data(), bytes, roots[rank]);
  });
  return answers;
}

TEST(Broadcast, BringsTheBytesOfTheRoot) {
  for (const auto& answer : broadcast({2, 2, 2})) {
    EXPECT_EQ(answer.status, BOOTSTRAP_OK);
    EXPECT_EQ(answer.data, "cccc");
  }
  EXPECT_EQ(broadcast({0, 0, 0}, 3).back().data, "aaac");
  EXPECT_EQ(broadcast({0, 0, 0}, 0).back().data, "cccc");
  for (const int root : {-1, 3, 1000000}) {
    for (const auto& answer : broadcast({root, root, root})) EXPECT_EQ(answer.status, BOOTSTRAP_ERROR_INVALID) << root;
  }
  for (const auto& answer : broadcast({0, 0, 1})) EXPECT_EQ(answer.status, BOOTSTRAP_ERROR_DISAGREEMENT);
}

// The status of each rank in an exchange to which rank 2 passes these arguments.
std::vector<bootstrap_status_t> exchange_with(std::size_t bytes, bool has_buffer) {
  std::vector<bootstrap_status_t> statuses(3);
  for_each_rank({2, 1}, [&](bootstrap_t& job, Rank rank) {
    char mine[4] = "abc";
    char all[12];
    const bool is_other = rank == 2;
    statuses[rank] = bootstrap_exchange(&job, is_other && !has_buffer ? nullptr : mine, is_other ? bytes : 4, all);
  });
  return statuses;
}

// If a value were copied first, it would overflow these small buffers.
TEST(ExchangeCall, FailsOnAllRanksIfOneRankRefuses) {
  using Statuses = std::vector<bootstrap_status_t>;
  EXPECT_EQ(exchange_with(4, true), Statuses(3, BOOTSTRAP_OK));
  EXPECT_EQ(exchange_with(4, false), Statuses(3, BOOTSTRAP_ERROR_INVALID));
  for (const std::size_t bytes : {std::size_t{70000}, std::size_t{0x40000000}, SIZE_MAX}) {
    EXPECT_EQ(exchange_with(bytes, true).back(), BOOTSTRAP_ERROR_LIMIT) << bytes;
  }
}

// The error of each rank in a communicator of the ranks 1, 0 and 2, for which rank 1, its root, passes another list
// than the others.
std::vector<std::string> make_with_a_wrong_list(const std::vector<std::uint32_t>& ranks_per_node) {
  std::vector<std::string> sentences(3);
  for_each_rank(ranks_per_node, [&](bootstrap_t& job, Rank rank) {
    job.nccl_library = nccl_double_path("2.28.9");
    const auto list = rank == 1 ? std::vector<int>{0} : std::vector<int>{1, 0, 2};
    ncclComm* comm = nullptr;
    (void)bootstrap_nccl_comm_ranks(&job, list.data(), static_cast<int>(list.size()), nullptr, &comm);
    sentences[rank] = bootstrap_last_error();
  });
  return sentences;
}

TEST(Communicators, FailOnAllRanksWithTheReasonIfAListIsWrong) {
  for (const auto& ranks_per_node : {std::vector<std::uint32_t>{3}, {2, 1}, {1, 1, 1}}) {
    in_child([&] {
      for (const auto& sentence : make_with_a_wrong_list(ranks_per_node)) {
        EXPECT_NE(sentence.find("the list of 1 ranks does not contain this rank, 1"), std::string::npos) << sentence;
      }
    });
  }
}

// An exchange in which the thread reaches a cancellation point after it was cancelled.
class SlowExchange : public Exchange {
 public:
  explicit SlowExchange(std::atomic<bool>& is_inside) : is_inside_(is_inside) {}
  Result<RankValues> run(const Allgather& /*round*/) override {
    is_inside_ = true;
    sleep_for(std::chrono::milliseconds(300));
    return RankValues();
  }
  Result<RankReports> share_reports(const std::optional<RankReport>& /*own*/,
                                    const std::vector<Rank>& /*asked*/) override {
    return RankReports();
  }

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

TEST(Cancellation, WaitsForTheEndOfTheCall) {
  for (const bool is_cancelled : {true, false}) {
    in_child([is_cancelled] {
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
      EXPECT_EQ(result == PTHREAD_CANCELED, is_cancelled) << "once the call has returned";
      EXPECT_EQ(calls.has_gone_on, !is_cancelled);
    });
  }
}

}  // namespace
}  // namespace bootstrap
