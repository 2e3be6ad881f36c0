// How missing ranks are named: exactly, in few words, and never without end.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/rank_layout.h"

#include <gtest/gtest.h>

#include <numeric>

#include "known_layout.h"

namespace bootstrap {
namespace {

TEST(RankNames, NamesARankWithItsHostAndLocalRank) {
  EXPECT_EQ(describe_rank(block_layout(4, 4), 5), "rank 5 (node002, local rank 1)");
  EXPECT_EQ(missing_ranks(block_layout(4, 4), {5}), "missing: rank 5 (node002, local rank 1)");
}

TEST(RankNames, SaysAWholeNodeInOneWord) {
  const auto layout = block_layout(4, 4);
  EXPECT_EQ(missing_ranks(layout, {8, 9, 10, 11, 13}),
            "missing: ranks 8-11 (all of node003), rank 13 (node004, local rank 1)");
  EXPECT_EQ(missing_ranks(layout, {8, 9, 10}),
            "missing: rank 8 (node003, local rank 0), rank 9 (node003, local rank 1), rank 10 (node003, local rank 2)");
  // One rank of a node of one is no range.
  EXPECT_EQ(missing_ranks(block_layout(3, 1), {1}), "missing: rank 1 (node002, local rank 0)");
}

TEST(RankNames, DoesNotTakeScatteredRanksForANode) {
  const std::vector<std::uint32_t> counts = {2, 2};
  const auto cyclic = *Layout::make({{*HostList::parse("node[001-002]"), counts, deal_cyclic(counts)}});
  EXPECT_EQ(missing_ranks(cyclic, {0, 2}), "missing: rank 0 (node001, local rank 0), rank 2 (node001, local rank 1)");
}

TEST(RankNames, HasAnEnd) {
  const auto layout = block_layout(100, 2);
  std::vector<Rank> odd;
  for (Rank rank = 1; rank < 200; rank += 2) odd.push_back(rank);
  const auto text = missing_ranks(layout, odd);
  EXPECT_LT(text.size(), 400U);
  EXPECT_NE(text.find("rank 15 (node008, local rank 1) and 92 more"), std::string::npos) << text;
}

TEST(RankNames, SaysAllInOneWord) {
  std::vector<Rank> all(16);
  std::iota(all.begin(), all.end(), Rank{0});
  EXPECT_EQ(missing_ranks(block_layout(4, 4), all), "missing: all 16 ranks");
}

}  // namespace
}  // namespace bootstrap
