// Ranks of one node that wait for each other: all or none, within the deadline, and no file left.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/node_barrier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(NodeBarrier, LetsAllGoTogether) {
  const auto meeting = NodeBarrier::open();
  ASSERT_FALSE(meeting.name().empty());
  const auto deadline = steady_clock::now() + std::chrono::seconds(10);
  std::atomic<int> released = 0;
  std::atomic<bool> is_early = false;
  std::vector<std::thread> guests;
  for (int i = 0; i < 7; ++i) {
    guests.emplace_back([&] {
      if (NodeBarrier::wait(meeting.name(), deadline)) ++released;
    });
  }
  std::thread last([&] {
    std::this_thread::sleep_for(milliseconds(50));
    is_early = released != 0;
    if (NodeBarrier::wait(meeting.name(), deadline)) ++released;
  });
  EXPECT_TRUE(meeting.lead(8, deadline));
  for (auto& guest : guests) guest.join();
  last.join();
  EXPECT_FALSE(is_early);
  EXPECT_EQ(released, 8);
}

TEST(NodeBarrier, EndsAtTheDeadlineWhenOneDoesNotCome) {
  const auto meeting = NodeBarrier::open();
  const auto start = steady_clock::now();
  const auto deadline = start + milliseconds(100);
  bool released = true;
  std::thread guest([&] { released = NodeBarrier::wait(meeting.name(), start + std::chrono::seconds(10)); });
  EXPECT_FALSE(meeting.lead(2, deadline));
  guest.join();  // the host's end ends its guests' waiting, too
  EXPECT_FALSE(released);
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(NodeBarrier, OfNobodyIsNoticedAtOnce) {
  std::string name;
  {
    const auto meeting = NodeBarrier::open();
    name = meeting.name();
  }
  const auto start = steady_clock::now();
  EXPECT_FALSE(NodeBarrier::wait(name, start + std::chrono::seconds(10)));
  EXPECT_FALSE(NodeBarrier::wait("", start + std::chrono::seconds(10)));
  EXPECT_FALSE(NodeBarrier::wait(std::string(500, 'x'), start + std::chrono::seconds(10)));
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace bootstrap
