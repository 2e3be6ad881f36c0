// The NCCL double must fail where NCCL fails, or tests that use it would show nothing.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "in_child.h"
#include "nccl_doubles.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A rank of a non-blocking communicator, with a version of NCCL of its own.
struct Started {
  nccl::Functions nccl;
  nccl::Comm comm = nullptr;
};

// Which number a rank has, and what it does before it starts.
struct Plan {
  std::function<int(int rank)> number = [](int rank) { return rank; };
  std::function<void(int rank)> before = [](int) {};
};

std::vector<Started> start(const std::vector<std::string>& versions, const Plan& plan = {}) {
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  std::vector<Started> ranks;
  nccl::UniqueId id{};
  nccl::Config config;
  config.blocking = 0;
  for (const auto& version : versions) {
    Started one{nccl_double(version)};
    const auto rank = static_cast<int>(ranks.size());
    if (rank == 0) {
      EXPECT_EQ(one.nccl.get_unique_id(&id), nccl::kSuccess);
    }
    plan.before(rank);
    const auto size = static_cast<int>(versions.size());
    EXPECT_EQ(one.nccl.init_rank_config(&one.comm, size, id, plan.number(rank), &config), nccl::kInProgress);
    ranks.push_back(one);
  }
  return ranks;
}

void abort_all(const std::vector<Started>& ranks) {
  for (const auto& one : ranks) EXPECT_EQ(one.nccl.abort(one.comm), nccl::kSuccess);
}

// The code of each rank; '.': it is still in progress.
std::string states_of(const std::vector<Started>& ranks) {
  std::string states;
  for (const auto& one : ranks) {
    nccl::ResultCode state = nccl::kSuccess;
    EXPECT_EQ(one.nccl.get_async_error(one.comm, &state), nccl::kSuccess);
    states += state == nccl::kInProgress ? "." : std::to_string(state);
  }
  return states;
}

// The ranks reach these states on a busy machine, too, and stay in them.
void expect_states(const std::vector<Started>& ranks, const std::string& states, const char* why = "") {
  for (int i = 0; i < 3000 && states_of(ranks) != states; ++i) std::this_thread::sleep_for(milliseconds(10));
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(states_of(ranks), states) << why;
}

TEST(NcclDouble, HangsWithTwoVersions) {
  in_child([] {
    const auto same = start({"2.28.9", "2.28.9"});
    expect_states(same, "00", "control");
    abort_all(same);
    const auto mixed = start({"2.28.9", "2.14.3"});
    expect_states(mixed, "..");
    const auto begin = steady_clock::now();
    abort_all(mixed);
    EXPECT_GT(steady_clock::now() - begin, milliseconds(900)) << "an abort takes its time while ranks connect";
  });
}

// As in NCCL: the root gives up, and the ranks wait until they are aborted.
TEST(NcclDouble, HangsWithTwoRanksOfOneNumber) {
  in_child([] {
    const auto ranks = start({"2.28.9", "2.28.9"}, {.number = [](int) { return 1; }});
    expect_states(ranks, "..");
    EXPECT_STREQ(ranks[0].nccl.get_last_error(nullptr),
                 "Bootstrap Root : rank 1 does not fit, or has already checked in");
    abort_all(ranks);
  });
}

void use_cuda_device(int ordinal) {
  void* context = nullptr;
  const auto retain = reinterpret_cast<int (*)(void**, int)>(::dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain"));
  const auto set = reinterpret_cast<int (*)(void*)>(::dlsym(RTLD_DEFAULT, "cuCtxSetCurrent"));
  EXPECT_EQ(retain(&context, ordinal), 0);
  EXPECT_EQ(set(context), 0);
}

TEST(NcclDouble, OnlyThoseThatShareAGpuFail) {
  in_child([] {
    ::setenv("CUDA_DOUBLE_DEVICES", "4", 1);
    ASSERT_NE(::dlopen(DOUBLES_DIR "/cuda/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), nullptr);
    ASSERT_EQ(reinterpret_cast<int (*)(unsigned)>(::dlsym(RTLD_DEFAULT, "cuInit"))(0), 0);
    const auto ranks = start({"2.28.9", "2.28.9", "2.28.9", "2.28.9"},
                             {.before = [](int rank) { use_cuda_device(rank == 2 ? 0 : rank); }});
    expect_states(ranks, "5.5.");
    const std::string said = ranks[0].nccl.get_last_error(nullptr);
    EXPECT_TRUE(said == "Duplicate GPU detected : rank 0 and rank 2 both on CUDA device 1a000" ||
                said == "Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1a000")
        << said;
    abort_all(ranks);
  });
}

TEST(NcclDouble, ARankThatFailsAloneLeavesItsPeersWaiting) {
  in_child([] {
    ::setenv("NCCL_DOUBLE_INIT", "fail:1", 1);
    const auto ranks = start({"2.28.9", "2.28.9", "2.28.9"});
    expect_states(ranks, ".1.");
    EXPECT_STREQ(ranks[1].nccl.get_last_error(nullptr), "Failed to CUDA calloc 2097152 bytes");
    abort_all(ranks);
  });
}

}  // namespace
}  // namespace bootstrap
