// The NCCL double must fail where NCCL fails, or tests that use it would show nothing.
// SPDX-License-Identifier: Apache-2.0
#include "nccl_double.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "in_child.h"
#include "nccl_doubles.h"
#include "test_socket.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// One version of the double, by the names of its functions.
class Double {
 public:
  explicit Double(std::string version = "2.28.9") : version_(std::move(version)) {
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  }

  template <class Function>
  Function* get(const char* name) const {
    return nccl_double_function<Function*>(version_, name);
  }

 private:
  std::string version_;
};
#define CALL(nccl, name) (nccl).get<decltype(name)>(#name)

struct Outcome {
  ncclComm_t comm = nullptr;
  ncclResult_t code = ncclInternalError;
};

std::vector<Outcome> in_threads(int ranks, const std::function<ncclResult_t(int rank, ncclComm_t* comm)>& make) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      outcome.code = make(rank, &outcome.comm);
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

std::vector<Outcome> world(const Double& nccl, int ranks) {
  ncclUniqueId id{};
  EXPECT_EQ(CALL(nccl, ncclGetUniqueId)(&id), ncclSuccess);
  const auto init = CALL(nccl, ncclCommInitRank);
  return in_threads(ranks, [&](int rank, ncclComm_t* comm) { return init(comm, ranks, id, rank); });
}

void destroy(const Double& nccl, const std::vector<Outcome>& outcomes) {
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.comm == nullptr ? ncclSuccess : CALL(nccl, ncclCommDestroy)(outcome.comm), ncclSuccess);
  }
}

// Magic, family, port and address, as in NCCL's own.
struct OpenedId {
  std::uint64_t magic;
  sockaddr_in address;
};
OpenedId open_id(const ncclUniqueId& id) {
  OpenedId opened{};
  std::memcpy(&opened, &id, sizeof opened);
  return opened;
}

TEST(NcclDouble, AnIdHasARandomMagicAndAnAddressThatListens) {
  const Double nccl;
  ncclUniqueId one{};
  ncclUniqueId other{};
  ASSERT_EQ(CALL(nccl, ncclGetUniqueId)(&one), ncclSuccess);
  ASSERT_EQ(CALL(nccl, ncclGetUniqueId)(&other), ncclSuccess);
  EXPECT_NE(open_id(one).magic, open_id(other).magic);
  EXPECT_EQ(TestSocket(Family::kIpv4).connect("127.0.0.1", ntohs(open_id(one).address.sin_port)), 0);
  const std::array<char, 88> rest{};
  EXPECT_EQ(std::memcmp(one.internal + 40, rest.data(), rest.size()), 0) << "40 bytes are used, as in NCCL's";
}

// As in NCCL: the root prints the error and gives up, and the ranks wait until they are aborted.
std::string root_gives_up(int (*ranks_of)(int), int (*rank_of)(int)) {
  const Double nccl;
  ncclUniqueId id{};
  EXPECT_EQ(CALL(nccl, ncclGetUniqueId)(&id), ncclSuccess);
  ncclConfig_t config{sizeof(ncclConfig_t), 0xcafebeef, 22809, 0};
  std::array<ncclComm_t, 2> comms{};
  for (int i = 0; i < 2; ++i) {
    const auto code =
        CALL(nccl, ncclCommInitRankConfig)(&comms[static_cast<std::size_t>(i)], ranks_of(i), id, rank_of(i), &config);
    EXPECT_EQ(code, ncclInProgress);
  }
  std::string said;
  const auto end = steady_clock::now() + milliseconds(10000);
  while (said.find("Bootstrap Root") == std::string::npos && steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(10));
    said = CALL(nccl, ncclGetLastError)(nullptr);
  }
  for (auto* const comm : comms) {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(CALL(nccl, ncclCommGetAsyncError)(comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclInProgress);
    EXPECT_EQ(CALL(nccl, ncclCommAbort)(comm), ncclSuccess);
  }
  return said;
}

TEST(NcclDouble, ItsRootNoticesWrongNumbers) {
  const auto two = [](int) { return 2; };
  const auto mismatch = root_gives_up([](int i) { return 2 + i; }, [](int i) { return i; });
  EXPECT_EQ(mismatch.find("Bootstrap Root : mismatch in info from procs, nranks "), 0U) << mismatch;
  EXPECT_EQ(root_gives_up(two, [](int) { return 1; }), "Bootstrap Root : rank 1 of 2 ranks has already checked in");
}

// A communicator of non-blocking ranks that may fail; each with a version of its own.
struct Started {
  Double nccl;
  ncclComm_t comm = nullptr;

  ncclResult_t state() const {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(CALL(nccl, ncclCommGetAsyncError)(comm, &state), ncclSuccess);
    return state;
  }
};

std::vector<Started> start(
    const std::vector<std::string>& versions, const std::function<void(int rank)>& before = [](int) {},
    const std::function<void(const ncclUniqueId& id)>& after_id = [](const ncclUniqueId&) {}) {
  std::vector<Started> ranks;
  ncclUniqueId id{};
  ncclConfig_t config{sizeof(ncclConfig_t), 0xcafebeef, 22809, 0};
  for (const auto& version : versions) {
    Started one{Double(version)};
    if (ranks.empty()) {
      EXPECT_EQ(CALL(one.nccl, ncclGetUniqueId)(&id), ncclSuccess);
      after_id(id);
    }
    const auto count = static_cast<int>(versions.size());
    before(static_cast<int>(ranks.size()));
    EXPECT_EQ(CALL(one.nccl, ncclCommInitRankConfig)(&one.comm, count, id, static_cast<int>(ranks.size()), &config),
              ncclInProgress);
    ranks.push_back(one);
  }
  return ranks;
}

void abort_all(const std::vector<Started>& ranks) {
  for (const auto& one : ranks) EXPECT_EQ(CALL(one.nccl, ncclCommAbort)(one.comm), ncclSuccess);
}

// Those that are still in progress, as '.', and the codes of the others.
std::string states_of(const std::vector<Started>& ranks) {
  std::string states;
  for (const auto& one : ranks) {
    const auto state = one.state();
    states += state == ncclInProgress ? "." : std::to_string(static_cast<int>(state));
  }
  return states;
}

// They reach these states on a busy machine, too, and stay in them.
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
    const auto ranks =
        start({"2.28.9", "2.28.9", "2.28.9", "2.28.9"}, [](int rank) { use_cuda_device(rank == 2 ? 0 : rank); });
    expect_states(ranks, "5.5.");
    const std::string said = CALL(ranks[0].nccl, ncclGetLastError)(nullptr);
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
    EXPECT_STREQ(CALL(ranks[1].nccl, ncclGetLastError)(nullptr), "Failed to CUDA calloc 2097152 bytes");
    abort_all(ranks);
  });
}

// ncclCommInitRank has no configuration, and returns only when it is done.
TEST(NcclDouble, TheEnvironmentMakesTheOtherCallsNonBlocking) {
  in_child([] {
    ::setenv("NCCL_COMM_BLOCKING", "0", 1);
    const Double nccl;
    const auto made = world(nccl, 2);
    for (const auto& each : made) EXPECT_EQ(each.code, ncclSuccess);
    ncclUniqueId id{};
    ASSERT_EQ(CALL(nccl, ncclGetUniqueId)(&id), ncclSuccess);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(CALL(nccl, ncclCommInitRankConfig)(&comm, 1, id, 0, nullptr), ncclInProgress);
    EXPECT_EQ(CALL(nccl, ncclCommAbort)(comm), ncclSuccess);
    destroy(nccl, made);
  });
}

TEST(NcclDouble, LeavesAThreadAndSixDescriptorsBehindOnce) {
  in_child([] {
    const auto count = [](const char* folder) {
      return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
    };
    const auto left_by = [&](const Double& nccl) {
      std::thread([] {}).join();  // with the first thread ThreadSanitizer starts one of its own
      const auto threads = count("/proc/self/task");
      const auto descriptors = count("/proc/self/fd");
      destroy(nccl, world(nccl, 2));
      // The root's thread ends, and closes its socket, a moment after its ranks have each other's addresses.
      for (int i = 0; i < 100 && count("/proc/self/fd") > descriptors + 6; ++i) {
        std::this_thread::sleep_for(milliseconds(10));
      }
      for (int i = 0; i < 100 && count("/proc/self/task") > threads + 1; ++i) {
        std::this_thread::sleep_for(milliseconds(10));
      }
      return std::to_string(count("/proc/self/task") - threads) + " " +
             std::to_string(count("/proc/self/fd") - descriptors);
    };
    const Double nccl;
    EXPECT_EQ(left_by(nccl), "1 6");
    EXPECT_EQ(left_by(nccl), "0 0") << "once";
  });
}

// A stranger connects to the root's port before the two ranks, and closes or sends noise.
std::vector<Started> start_after_stranger(const std::string& version, std::size_t noise) {
  const auto meet = [noise](const ncclUniqueId& id) {
    const TestSocket stranger(Family::kIpv4);
    EXPECT_EQ(stranger.connect("127.0.0.1", ntohs(open_id(id).address.sin_port)), 0);
    const std::array<char, 200> zeros{};
    EXPECT_EQ(stranger.send(zeros.data(), noise), 0);
  };
  return start(
      {version, version}, [](int) {}, meet);
}

TEST(NcclDouble, OldVersionsHangWhenAStrangerConnectsToTheRoot) {
  const auto expect = [](const std::string& version, std::size_t noise, const std::string& states) {
    const auto ranks = start_after_stranger(version, noise);
    expect_states(ranks, states, version.c_str());
    abort_all(ranks);
  };
  in_child([&] {
    expect("2.14.3", 0, "..");
    expect("2.14.3", 200, "00");
    expect("2.18.3", 200, "00");
    expect("2.28.9", 0, "00");
    expect("2.28.9", 200, "00");
    // The root ends. A rank that connects before that waits, and one that connects later fails.
    const auto ranks = start_after_stranger("2.23.4", 0);
    std::this_thread::sleep_for(milliseconds(1000));
    EXPECT_EQ(states_of(ranks).find_first_not_of(".2"), std::string::npos) << states_of(ranks);
    abort_all(ranks);
  });
}

TEST(NcclDouble, ListensOnTheInterfaceOfNcclSocketIfname) {
  in_child([] {
    const Double nccl;
    ncclUniqueId id{};
    ::setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
    ASSERT_EQ(CALL(nccl, ncclGetUniqueId)(&id), ncclSuccess);
    EXPECT_EQ(open_id(id).address.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    ::setenv("NCCL_SOCKET_IFNAME", "nothing", 1);
    EXPECT_EQ(CALL(nccl, ncclGetUniqueId)(&id), ncclInvalidUsage);
    EXPECT_STREQ(CALL(nccl, ncclGetLastError)(nullptr), "Bootstrap : no socket interface found");
  });
}

}  // namespace
}  // namespace bootstrap
