// All-reduces among threads as ranks, on the doubles of NCCL and CUDA: sums, faults that must be seen, and deadlines.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/all_reduce.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/cuda_buffers.h"
#include "comm/nccl/cuda_device.h"
#include "communicator_step.h"
#include "in_child.h"
#include "tools/bench/bench_report.h"

namespace bootstrap {
namespace {

using Findings = std::vector<Result<BenchFinding>>;

// Runs the sizes one after the other; returns what each rank finds for the last one.
Findings run_all(std::uint32_t ranks, const std::vector<AllReduceTask>& tasks) {
  Step step({ranks});
  const auto comms = step.make([](Rank rank, Call& call) { call.options.device = static_cast<int>(rank); });
  Findings findings(ranks, fail(ErrorCode::kMissing, "no communicator"));
  const auto nccl = nccl_double("2.28.9");
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    if (!comms[rank]) continue;
    threads.emplace_back([&, rank] {
      AllReduce all_reduce(
          {.nccl = nccl, .comm = *comms[rank], .device = static_cast<int>(rank), .ranks = ranks, .rank = rank},
          tasks.back().bytes);
      for (const auto& task : tasks) {
        findings[rank] = all_reduce.run(task, std::chrono::steady_clock::now() + kEnough);
        if (!findings[rank]) break;
      }
      if (all_reduce.is_stuck()) return;
      EXPECT_TRUE(use_gpu(static_cast<int>(rank)));  // its buffers are freed now
    });
  }
  for (auto& thread : threads) thread.join();
  return findings;
}

AllReduceTask task_of(std::uint64_t bytes, bool is_in_place = false) {
  return {.bytes = bytes, .iterations = 2, .warmup = 1, .is_in_place = is_in_place, .is_checked = true};
}

std::uint64_t wrong(const Findings& findings) {
  std::uint64_t sum = 0;
  for (const auto& finding : findings) {
    EXPECT_TRUE(finding) << finding.error().message;
    sum += finding ? finding->wrong : 0;
  }
  return sum;
}

TEST(AllReduce, PartsAreSmallAndDifferBetweenRanks) {
  EXPECT_EQ(part_of_sum(0, 0), 0);
  EXPECT_EQ(part_of_sum(2, 5), 7);
  EXPECT_EQ(part_of_sum(60, 1), 0);
  EXPECT_EQ(part_of_sum(1, std::uint64_t{1} << 35), part_of_sum(0, (std::uint64_t{1} << 35) + 1)) << "beyond 32 bits";
}

TEST(AllReduce, SumsAreRight) {
  in_child([] {
    load_gpus("5");
    for (const std::uint32_t ranks : {1U, 2U, 5U}) {
      const auto findings = run_all(ranks, {task_of(4), task_of(4096), task_of(244, true), task_of(1 << 20, true)});
      EXPECT_EQ(wrong(findings), 0U) << ranks;
      for (const auto& finding : findings) {
        EXPECT_GT(finding->microseconds, 0) << "time passes";
        EXPECT_EQ(finding->ranks, ranks);
      }
    }
  });
}

// Controls: the double makes each of these errors on all ranks.
TEST(AllReduce, WrongSumsAreSeen) {
  in_child([] {
    load_gpus("2");
    ::setenv("NCCL_DOUBLE_FAULT", "sum", 1);
    auto findings = run_all(2, {task_of(4096)});
    EXPECT_EQ(wrong(findings), 4U) << "the last value, out of place and in place, on both ranks";
    const auto& first = findings[0]->first;
    EXPECT_FALSE(first.is_in_place);
    EXPECT_EQ(first.index, 1023U);
    EXPECT_EQ(first.expected, part_of_sum(0, 1023) + part_of_sum(1, 1023));
    EXPECT_EQ(first.found, first.expected + 1);
    ::setenv("NCCL_DOUBLE_FAULT_AT", "1", 1);
    findings = run_all(2, {task_of(4096)});
    EXPECT_EQ(wrong(findings), 2U) << "in place alone";
    EXPECT_TRUE(findings[1]->first.is_in_place);
    ::unsetenv("NCCL_DOUBLE_FAULT_AT");
    ::setenv("NCCL_DOUBLE_FAULT", "lazy", 1);
    findings = run_all(2, {task_of(4096)});
    EXPECT_GT(wrong(findings), 2 * 2 * 1000U) << "nothing was added: a few numbers are the sum by chance";
  });
}

TEST(AllReduce, AGpuWithoutMemoryIsReported) {
  in_child([] {
    load_gpus("1");
    ::setenv("CUDA_DOUBLE_MEMORY", "1000", 1);
    const auto findings = run_all(1, {task_of(1024)});
    ASSERT_FALSE(findings[0]);
    EXPECT_EQ(findings[0].error().message, "the CUDA call for two buffers of 1024 bytes failed: out of memory (2)");
  });
}

TEST(CudaBuffers, NamesTheGpu) {
  in_child([] {
    load_gpus("1");
    EXPECT_FALSE(why_no_gpu());
    ASSERT_TRUE(use_gpu(0));
    EXPECT_EQ(name_of_gpu(0), "CUDA double");
    EXPECT_EQ(name_of_gpu(3).error().message,
              "the CUDA call for the name of device 3 failed: invalid device ordinal (101)");
  });
  in_child([] {
    load_gpus("0");
    EXPECT_EQ(why_no_gpu(), "no CUDA-capable device is detected (100)");
  });
}

}  // namespace
}  // namespace bootstrap
