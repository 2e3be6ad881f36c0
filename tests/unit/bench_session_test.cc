// A bench with threads as ranks: which ranks may begin, the table, and that all end alike.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_session.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/cuda_device.h"
#include "communicator_step.h"
#include "in_child.h"

namespace bootstrap {
namespace {

// What a rank had in the end.
struct Outcome {
  std::optional<BenchEnd> end;
  BenchStage stage;
  std::vector<BenchRow> rows;
  std::string wrong;
};
using Devices = std::vector<int>;

std::vector<Outcome> bench(const std::vector<std::uint32_t>& ranks_per_node, const Devices& devices,
                           GroupKind group = GroupKind::kWorld) {
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  ExchangeHall hall(layout_of(ranks_per_node));
  std::vector<Outcome> outcomes(hall.layout().size());
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < outcomes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      BenchSelf self;
      self.id = {.job = 12, .step = 0, .restart = 0};
      self.layout = hall.layout();
      self.rank = rank;
      self.device = devices[rank];
      self.nccl_library = nccl_double_path("2.28.9");
      BenchPlan plan;
      plan.sizes = {8, 1024};
      plan.group = group;
      plan.task.iterations = 2;
      plan.task.warmup = 0;
      plan.timeout = kEnough;
      const auto exchange = hall.exchange_of(rank);
      BenchSession session(std::move(self), *exchange, std::move(plan));
      auto& outcome = outcomes[rank];
      outcome.end = session.look();
      if (!outcome.end) outcome.end = session.connect();
      if (!outcome.end) outcome.end = session.measure(nullptr);
      outcome.stage = session.stage();
      outcome.rows = session.rows();
      outcome.wrong = session.wrong();
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

// The same for all, or "different".
std::string sentence_of(const std::vector<Outcome>& outcomes, int status) {
  for (const auto& outcome : outcomes) {
    if (!outcome.end) return "no end";
    if (outcome.end->status != status || !outcome.end->is_known_to_all) return "another end";
    if (outcome.end->sentence != outcomes.front().end->sentence) return "different";
  }
  return outcomes.front().end->sentence;
}

TEST(BenchSession, AllRanksHaveTheSameTable) {
  in_child([] {
    load_gpus("3");  // the threads are one host to NCCL
    const auto outcomes = bench({2, 1}, {0, 1, 2});
    for (const auto& outcome : outcomes) {
      ASSERT_FALSE(outcome.end) << outcome.end->sentence;
      ASSERT_EQ(outcome.rows.size(), 2U);
      EXPECT_EQ(outcome.rows[1].bytes, 1024U);
      EXPECT_GT(outcome.rows[1].bus, outcome.rows[1].algorithm) << "4/3 of it";
      EXPECT_EQ(outcome.rows[1].microseconds, outcomes[0].rows[1].microseconds) << "that of the slowest";
      EXPECT_EQ(outcome.wrong, "");
      EXPECT_EQ(outcome.stage.gpus, std::vector<std::string>(3, "CUDA double"));
      EXPECT_EQ(outcome.stage.nccl_version, "2.28.9");
      EXPECT_GT(outcome.stage.comm_ms, 0);
    }
  });
}

TEST(BenchSession, CommunicatorsOfNodesMayDifferInSize) {
  in_child([] {
    load_gpus("2");
    const auto outcomes = bench({2, 1}, {0, 1, 0}, GroupKind::kNode);
    ASSERT_FALSE(outcomes[0].end);
    EXPECT_EQ(outcomes[0].stage.fewest, 1U);
    EXPECT_EQ(outcomes[0].stage.most, 2U);
    EXPECT_EQ(outcomes[2].wrong, "");
  });
}

TEST(BenchSession, AGpuThatCannotBeUsedIsAFailure) {
  in_child([] {
    load_gpus("2");
    EXPECT_EQ(sentence_of(bench({1, 1}, {0, 5}), 1),
              "rank 1 (node002, local rank 0): GPU 5 cannot be used: invalid device ordinal (101)");
  });
}

TEST(BenchSession, TwoRanksOnOneGpuAreAFailure) {
  in_child([] {
    load_gpus("1");
    const auto sentence = sentence_of(bench({2}, {0, 0}), 1);
    EXPECT_NE(sentence.find("are both on GPU 0000:1a:00.0"), std::string::npos) << sentence;
  });
}

}  // namespace
}  // namespace bootstrap
