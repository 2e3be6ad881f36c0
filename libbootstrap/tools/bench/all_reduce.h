// All-reduces of one communicator: how long they take, whether their sums are right, and an end to every wait.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/exchange.h"
#include "comm/nccl/nccl_library.h"
#include "core/util/result.h"
#include "tools/bench/bench_report.h"

namespace bootstrap {

// One rank of a communicator. The communicator is not owned.
struct AllReduceMember {
  nccl::Functions nccl;
  nccl::Comm comm = nullptr;
  int device = 0;  // CUDA ordinal
  std::uint32_t ranks = 1;
  std::uint32_t rank = 0;
};

// All members make the same calls in the same order. What NCCL and CUDA do runs in a thread of its own: a call comes
// back at its deadline with kTimeout, and that thread stays where it is: then the process can only end, by _exit(2).
class AllReduce {
 public:
  AllReduce(AllReduceMember member, std::uint64_t most_bytes);

  // Microseconds of one all-reduce (the mean of the iterations, which run one after the other without a wait between
  // them, as nccl-tests does it), and how many values were not the sum.
  Result<BenchFinding> run(const AllReduceTask& task, Deadline deadline);
  bool is_stuck() const { return is_stuck_; }  // a thread is still in NCCL or CUDA

  struct State;

 private:
  std::shared_ptr<State> state_;
  bool is_stuck_ = false;
};

// What rank `rank` puts at `index`, and the sum over `ranks`: small whole numbers, so that floats add up exactly in any
// order up to 279,000 ranks, with a period that is prime, so that a piece that went to another place is seen.
inline constexpr std::uint32_t kPeriod = 61;
float part_of_sum(std::uint32_t rank, std::uint64_t index);

}  // namespace bootstrap
