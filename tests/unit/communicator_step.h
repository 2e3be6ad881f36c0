// A step whose ranks are threads. They make communicators, each with its own options, group and copy of NCCL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/nccl/communicator.h"
#include "exchange_double.h"
#include "nccl_doubles.h"

namespace bootstrap {

// Loads CUDA's double into this process; call it in a child.
inline void load_gpus(const char* count) {
  ::setenv("CUDA_DOUBLE_DEVICES", count, 1);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_NE(::dlopen(DOUBLES_DIR "/cuda/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
}

inline constexpr auto kEnough = std::chrono::seconds(60);  // on a machine with many more ranks than cores

// One call on all ranks, each in a thread. A test can change the options, group and NCCL of a rank.
struct Call : CommunicatorCall {
  std::function<void()> before = [] {};  // in the rank's thread
};
using Change = std::function<void(Rank, Call&)>;
using Comms = std::vector<Result<nccl::Comm>>;

class Step {
 public:
  explicit Step(const std::vector<std::uint32_t>& ranks_per_node, std::string version = "2.28.9")
      : hall_(layout_of(ranks_per_node)), version_(std::move(version)) {
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  }

  const Layout& layout() const { return hall_.layout(); }
  std::size_t values_read() const { return hall_.values_read(); }

  Comms make(const Change& change, std::chrono::milliseconds timeout = kEnough) {
    return each<nccl::Comm>(change, timeout, [](const Call& call) { return make_communicator(call); });
  }

  std::vector<Result<std::vector<nccl::UniqueId>>> make_ids(std::uint32_t roots, const Change& change) {
    return each<std::vector<nccl::UniqueId>>(change, kEnough, [roots](Call call) {
      call.options.roots = roots;
      return exchange_unique_ids(std::move(call));
    });
  }

 private:
  template <class Value, class Work>
  std::vector<Result<Value>> each(const Change& change, std::chrono::milliseconds timeout, Work work) {
    std::vector<Result<Value>> results(layout().size(), fail(ErrorCode::kMissing, "no result"));
    const auto nccl = nccl_double(version_);
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < layout().size(); ++rank) {
      Call call;
      call.layout = layout();
      call.options.deadline = deadline;
      call.group = world_group(layout(), rank);
      call.nccl = nccl;
      change(rank, call);
      threads.emplace_back([&, rank, call]() mutable {
        call.before();
        const auto exchange = hall_.exchange_of(rank);
        call.exchange = exchange.get();
        results[rank] = work(call);
      });
    }
    for (auto& thread : threads) thread.join();
    return results;
  }

  ExchangeHall hall_;
  std::string version_;
};

inline const Change kNoChange = [](Rank, Call&) {};

// Uses each communicator: "rank/size sum", where the sum is an all-reduce of the ranks' numbers in the step.
inline std::vector<std::string> used(const Comms& comms, const std::string& version = "2.28.9") {
  const auto count = nccl_double_function<decltype(&ncclCommCount)>(version, "ncclCommCount");
  const auto user_rank = nccl_double_function<decltype(&ncclCommUserRank)>(version, "ncclCommUserRank");
  const auto all_reduce = nccl_double_function<decltype(&ncclAllReduce)>(version, "ncclAllReduce");
  const auto destroy = nccl_double_function<decltype(&ncclCommDestroy)>(version, "ncclCommDestroy");
  std::vector<std::string> answers(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < comms.size(); ++i) {
    threads.emplace_back([&, i] {
      answers[i] = comms[i] ? "none" : comms[i].error().message;
      if (!comms[i] || *comms[i] == nullptr) return;
      int size = 0;
      int rank = 0;
      auto number = static_cast<float>(i);
      const bool is_right = count(*comms[i], &size) == ncclSuccess && user_rank(*comms[i], &rank) == ncclSuccess &&
                            all_reduce(&number, &number, 1, ncclFloat32, ncclSum, *comms[i], nullptr) == ncclSuccess;
      answers[i] =
          is_right ? std::to_string(rank) + "/" + std::to_string(size) + " " + std::to_string(static_cast<int>(number))
                   : "a call failed";
      (void)destroy(*comms[i]);
    });
  }
  for (auto& thread : threads) thread.join();
  return answers;
}

// The error messages of the ranks, with the number of ranks for each.
inline std::multiset<std::string> sentences(const Comms& comms) {
  std::multiset<std::string> found;
  for (const auto& comm : comms) {
    if (!comm) found.insert(comm.error().message);
  }
  return found;
}

}  // namespace bootstrap
