// bootstrap_broadcast: one rank's bytes arrive everywhere, and a call that cannot be right is refused before it waits.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "api/job.h"
#include "bootstrap/bootstrap.h"
#include "exchange_double.h"

namespace bootstrap {
namespace {

struct Answer {
  bootstrap_status_t status = BOOTSTRAP_OK;
  std::string data;
};

// Each rank passes its own letter, and roots[rank] as the root.
std::vector<Answer> broadcast(const std::vector<int>& roots, std::size_t bytes = 4) {
  ExchangeHall hall(layout_of({2, 1}));
  std::vector<Answer> answers(hall.layout().size());
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < answers.size(); ++rank) {
    threads.emplace_back([&, rank] {
      bootstrap_t job;
      job.layout = hall.layout();
      job.place = job.layout.place(rank);
      job.timeout = std::chrono::seconds(20);
      job.exchange = hall.exchange_of(rank);
      auto& answer = answers[rank];
      answer.data.assign(4, static_cast<char>('a' + rank));
      answer.status = bootstrap_broadcast(&job, answer.data.data(), bytes, roots[rank]);
    });
  }
  for (auto& thread : threads) thread.join();
  return answers;
}

TEST(Broadcast, BringsTheBytesOfTheRoot) {
  for (const auto& answer : broadcast({2, 2, 2})) {
    EXPECT_EQ(answer.status, BOOTSTRAP_OK);
    EXPECT_EQ(answer.data, "cccc");
  }
  EXPECT_EQ(broadcast({0, 0, 0}, 3).back().data, "aaac");
  EXPECT_EQ(broadcast({0, 0, 0}, 0).back().data, "cccc");
}

TEST(Broadcast, RefusesARootThatIsNoRank) {
  for (const int root : {-1, 3, 1000000}) {
    for (const auto& answer : broadcast({root, root, root})) EXPECT_EQ(answer.status, BOOTSTRAP_ERROR_INVALID) << root;
  }
}

TEST(Broadcast, SaysWhereRanksNameDifferentRoots) {
  for (const auto& answer : broadcast({0, 0, 1})) EXPECT_EQ(answer.status, BOOTSTRAP_ERROR_DISAGREEMENT);
}

}  // namespace
}  // namespace bootstrap
