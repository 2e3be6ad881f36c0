// Each outcome of ncclCommInitRank: done, refused, late, never. None hangs, also if NCCL or CUDA does not start.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "comm/nccl/nccl_library.h"
#include "communicator_step.h"
#include "in_child.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// NCCL as a few functions without captures: their results, and their calls.
struct FakeNccl {
  std::atomic<int> pause_ms{0};
  std::atomic<int> answer{nccl::kSuccess};
  std::atomic<int> polls_until_done{0};
  std::atomic<int> last_state{nccl::kSuccess};
  std::atomic<int> aborts{0};
};
FakeNccl fake;

nccl::Comm the_comm() { return reinterpret_cast<nccl::Comm>(&fake); }

nccl::ResultCode fake_init(nccl::Comm* comm, int, nccl::UniqueId, int) {
  std::this_thread::sleep_for(milliseconds(fake.pause_ms));
  if (fake.answer == nccl::kSuccess || fake.answer == nccl::kInProgress) *comm = the_comm();
  return fake.answer;
}

nccl::Functions fake_functions() {
  fake.pause_ms = 0;
  fake.answer = nccl::kSuccess;
  fake.polls_until_done = 0;
  fake.last_state = nccl::kSuccess;
  fake.aborts = 0;
  nccl::Functions nccl;
  nccl.init_rank = fake_init;
  nccl.init_rank_config = [](nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank, void* config) {
    EXPECT_EQ(static_cast<const nccl::Config*>(config)->blocking, 0);
    return fake_init(comm, ranks, id, rank);
  };
  nccl.get_async_error = [](nccl::Comm comm, nccl::ResultCode* state) {
    EXPECT_EQ(comm, the_comm());
    *state = fake.polls_until_done-- > 0 ? nccl::kInProgress : fake.last_state.load();
    return nccl::kSuccess;
  };
  nccl.abort = [](nccl::Comm comm) {
    EXPECT_EQ(comm, the_comm());
    ++fake.aborts;
    return nccl::kSuccess;
  };
  return nccl;
}

// Rank 9 of the step is rank 5 of the communicator.
Result<nccl::Comm> init(const nccl::Functions& nccl, bool nonblocking, milliseconds timeout) {
  const auto layout = layout_of({8, 8});
  return init_communicator({.layout = layout,
                            .group = *list_group(layout, 9, {0, 1, 2, 3, 4, 9, 10, 11}),
                            .nccl = nccl,
                            .options = {.nonblocking = nonblocking, .deadline = steady_clock::now() + timeout}},
                           std::vector<nccl::UniqueId>(1));
}

constexpr milliseconds kLong{60000};
constexpr milliseconds kShort{200};

TEST(Init, EndsAsNcclDoes) {
  struct Row {
    const char* why;
    bool nonblocking;
    int answer;  // of the call
    int polls_until_done;
    int last_state;
    const char* message;  // empty: a communicator
    int aborts;
  };
  for (const auto& row : std::initializer_list<Row>{
           {"blocking", false, nccl::kSuccess, 0, nccl::kSuccess, "", 0},
           {"non-blocking", true, nccl::kInProgress, 5, nccl::kSuccess, "", 0},
           {"refused", false, ncclInvalidUsage, 0, nccl::kSuccess, "ncclCommInitRank failed: error 5", 0},
           {"fails later", true, nccl::kInProgress, 3, 6, "ncclCommInitRankConfig failed: error 6", 1}}) {
    const auto nccl = fake_functions();
    fake.answer = row.answer;
    fake.polls_until_done = row.polls_until_done;
    fake.last_state = row.last_state;
    const auto comm = init(nccl, row.nonblocking, kLong);
    EXPECT_EQ(comm ? "" : comm.error().message, row.message) << row.why;
    EXPECT_TRUE(!comm || *comm == the_comm()) << row.why;
    EXPECT_EQ(comm ? ErrorCode::kUnavailable : comm.error().code, ErrorCode::kUnavailable) << row.why;
    EXPECT_EQ(fake.aborts, row.aborts) << row.why;
  }
}

TEST(Init, AbortsANonBlockingOneAtTheDeadline) {
  const auto nccl = fake_functions();
  fake.answer = nccl::kInProgress;
  fake.polls_until_done = 1 << 30;
  const auto start = steady_clock::now();
  const auto error = error_of(init(nccl, true, kShort));
  EXPECT_GE(steady_clock::now() - start, kShort);
  EXPECT_EQ(fake.aborts, 1) << "before the call returns";
  EXPECT_EQ(error.code, ErrorCode::kTimeout);
  EXPECT_EQ(error.message.find("ncclCommInitRankConfig has not finished after 0."), 0U) << error.message;
  EXPECT_NE(error.message.find(" on rank 9 (node002, local rank 1), which is rank 5 of 8 in the communicator"),
            std::string::npos);
}

// After the deadline no caller remains that could destroy a communicator.
TEST(Init, EndsABlockingOneThatComesTooLate) {
  const auto nccl = fake_functions();
  fake.pause_ms = 600;
  EXPECT_EQ(error_of(init(nccl, false, kShort)).code, ErrorCode::kTimeout);
  EXPECT_EQ(fake.aborts, 0) << "there is no communicator yet";
  for (int i = 0; i < 1000 && fake.aborts == 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(fake.aborts, 1);
}

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

// With the double: one rank agrees to the communicator, and its NCCL fails before it has reached the others.
Comms one_stays_out(Step& step, bool nonblocking) {
  return step.make(
      [nonblocking](Rank rank, Call& call) {
        call.options.nonblocking = nonblocking;
        if (rank != 1) return;
        const auto fail = [](auto...) -> nccl::ResultCode { return ncclInvalidUsage; };
        call.nccl.init_rank = fail;
        call.nccl.init_rank_config = fail;
      },
      milliseconds(2000));
}

TEST(Init, ARankThatFailsAloneIsNoHang) {
  for (const bool nonblocking : {false, true}) {
    in_child([nonblocking] {
      Step step({3});
      std::thread([] {}).join();  // ThreadSanitizer starts its own thread with the first one
      const auto before = threads();
      const auto comms = one_stays_out(step, nonblocking);
      for (const std::size_t rank : {0U, 2U}) {
        const auto said = error_of(comms[rank]).message;
        EXPECT_EQ(said.find("rank 1 (node001, local rank 1): ncclCommInitRank"), 0U) << said;
      }
      EXPECT_EQ(error_of(comms[1]).code, ErrorCode::kUnavailable);
      // The thread of NCCL's root, and for blocking calls NCCL's two threads; the control for "no thread is left".
      // Ended threads may be counted for a moment.
      const std::ptrdiff_t kept = nonblocking ? 1 : 3;
      for (int i = 0; i < 200 && threads() - before > kept; ++i) std::this_thread::sleep_for(milliseconds(10));
      EXPECT_EQ(threads() - before, kept);
    });
  }
}

constexpr milliseconds kTimeout{1000};

// The message of the C function on each rank. SIGALRM ends a call that hangs, and fails the test.
std::vector<std::string> make_comms(const std::string& nccl, std::uint32_t ranks) {
  (void)::alarm(300);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  std::vector<std::string> sentences(ranks);
  for_each_rank({ranks}, [&](bootstrap_t& job, Rank rank) {
    job.timeout = kTimeout;
    job.device = static_cast<int>(rank);
    job.nccl_library = nccl;
    ncclComm* comm = nullptr;
    const auto status = bootstrap_nccl_comm(&job, BOOTSTRAP_WORLD, nullptr, &comm);
    sentences[rank] = status == BOOTSTRAP_OK ? "" : bootstrap_last_error();
  });
  return sentences;
}

TEST(FirstCalls, EndInTheDeadlineIfALibraryOrDriverDoesNotStart) {
  in_child([] {
    for (const auto& sentence : make_comms(DOUBLES_DIR "/nccl_endless.so", 2)) {
      EXPECT_NE(sentence.find("the start of NCCL and the GPU on this rank has not ended before the deadline"),
                std::string::npos)
          << sentence;
    }
  });
  for (const bool stalls : {true, false}) {
    in_child([stalls] {
      load_gpus("2");
      if (stalls) ::setenv("CUDA_DOUBLE_STALL", "1", 1);
      for (const auto& sentence : make_comms(nccl_double_path("2.28.9"), 2)) {
        EXPECT_EQ(sentence.find("has not ended before the deadline") != std::string::npos, stalls) << sentence;
        EXPECT_EQ(sentence.empty(), !stalls) << "control: " << sentence;
      }
    });
  }
}

// The root still has time to send the reason to the other ranks.
TEST(FirstCalls, AnIdThatIsNeverMadeEndsInTheDeadlineOnAllRanks) {
  in_child([] {
    (void)::alarm(300);
    Step step({1, 2});
    const auto comms = step.make(
        [](Rank, Call& call) {
          call.nccl.get_unique_id = [](nccl::UniqueId*) {
            for (;;) (void)::pause();
            return nccl::kSuccess;
          };
        },
        kTimeout);
    for (const auto& comm : comms) {
      const auto said = error_of(comm).message;
      EXPECT_NE(said.find("ncclGetUniqueId has not ended before the deadline"), std::string::npos) << said;
    }
  });
}

}  // namespace
}  // namespace bootstrap
