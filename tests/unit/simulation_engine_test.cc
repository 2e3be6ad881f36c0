// The simulator's parts: the order of events, cores, servers, links and noise, held against what can be said by hand.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "simulation/event_queue.h"
#include "simulation/resources.h"

namespace bootstrap::simulation {
namespace {

TEST(SimulationEvents, ComeInOrderOfTimeAndThenOfScheduling) {
  EventQueue queue;
  std::string order;
  queue.at(2, [&] { order += 'c'; });
  queue.at(1, [&] {
    order += 'a';
    queue.after(1, [&] { order += 'd'; });  // at 2 as well, and scheduled last
    queue.at(0.5, [&] { order += 'b'; });   // has passed: now
  });
  queue.run();
  EXPECT_EQ(order, "abcd");
  EXPECT_EQ(queue.handled(), 4U);
  EXPECT_EQ(queue.now(), 2);
}

TEST(SimulationEvents, ManyAreSorted) {
  EventQueue queue;
  std::uint32_t state = 1;
  Seconds last = 0;
  for (int i = 0; i < 10'000; ++i) {
    state = state * 1664525U + 1013904223U;
    queue.at(state % 1000, [&] {
      EXPECT_GE(queue.now(), last);
      last = queue.now();
    });
  }
  queue.run();
  EXPECT_EQ(queue.handled(), 10'000U);
}

// When each of the pieces of work is done, all of them begun at 0.
std::vector<Seconds> run_on_cores(double count, const std::vector<Seconds>& work) {
  EventQueue queue;
  Cores cores(queue, count);
  std::vector<Seconds> ends(work.size());
  for (std::size_t i = 0; i < work.size(); ++i) {
    cores.run(work[i], [&, i] { ends[i] = queue.now(); });
  }
  queue.run();
  return ends;
}

void expect_near(const std::vector<Seconds>& found, const std::vector<Seconds>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9) << i;
}

TEST(SimulationCores, WithoutALimitNothingWaits) { expect_near(run_on_cores(0, {1, 2, 3}), {1, 2, 3}); }

TEST(SimulationCores, OneCoreIsSharedEqually) { expect_near(run_on_cores(1, {1, 2, 3}), {3, 5, 6}); }

TEST(SimulationCores, OnePieceOfWorkHasOneCoreAtMost) { expect_near(run_on_cores(2, {4}), {4}); }

TEST(SimulationCores, TwoCoresServeThree) { expect_near(run_on_cores(2, {1, 1, 2}), {1.5, 1.5, 2.5}); }

TEST(SimulationCores, HalfACoreTakesTwiceAsLong) { expect_near(run_on_cores(0.5, {1}), {2}); }

TEST(SimulationCores, WorkThatComesLaterSharesWhatIsLeft) {
  EventQueue queue;
  Cores cores(queue, 1);
  Seconds first = 0, second = 0;
  cores.run(2, [&] { first = queue.now(); });
  queue.at(1, [&] { cores.run(2, [&] { second = queue.now(); }); });
  queue.run();
  EXPECT_NEAR(first, 3, 1e-9);   // alone for 1, then half as fast
  EXPECT_NEAR(second, 4, 1e-9);  // half as fast for 2, then alone
}

TEST(SimulationServer, ServesOneAfterTheOther) {
  EventQueue queue;
  Cores cores(queue, 0);
  SerialServer server(cores);
  std::vector<Seconds> ends;
  for (int i = 0; i < 4; ++i) server.serve(1, [&] { ends.push_back(queue.now()); });
  EXPECT_EQ(server.waiting(), 4U);
  queue.run();
  EXPECT_EQ(ends, (std::vector<Seconds>{1, 2, 3, 4}));
  EXPECT_EQ(server.waiting(), 0U);
}

TEST(SimulationServer, TwoOfThemDoNotWaitForEachOther) {
  EventQueue queue;
  Cores cores(queue, 0);
  SerialServer one(cores), other(cores);
  for (int i = 0; i < 3; ++i) {
    one.serve(1, [] {});
    other.serve(1, [] {});
  }
  queue.run();
  EXPECT_EQ(queue.now(), 3);
}

TEST(SimulationNoise, IsOneOnAverageAndTheSameForASeed) {
  Noise noise(0.2, 7), same(0.2, 7), other(0.2, 8);
  double sum = 0;
  bool is_different = false;
  for (int i = 0; i < 100'000; ++i) {
    const double factor = noise.factor();
    EXPECT_EQ(factor, same.factor());
    EXPECT_GE(factor, 0.8);
    is_different |= factor != other.factor();
    sum += factor;
  }
  EXPECT_NEAR(sum / 100'000, 1, 0.01);
  EXPECT_TRUE(is_different);
  EXPECT_EQ(Noise(0, 7).factor(), 1);
}

}  // namespace
}  // namespace bootstrap::simulation
