// The sentence about ranks that did not call: a rank whose state is unknown is not called missing.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/missing_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "known_layout.h"

namespace bootstrap {
namespace {

TEST(MissingRanks, IsAFactWhereTheServerAnswers) {
  EXPECT_EQ(describe_missing_ranks(block_layout(4, 4), {{5, 8, 9, 10, 11}, {}, {}, ServerState::kAnswers}),
            "missing: rank 5 (node002, local rank 1), ranks 8-11 (all of node003)");
}

TEST(MissingRanks, AreOnTheNodeThatTheServerWasQueryingWhenItFellSilent) {
  const auto layout = block_layout(4, 4);
  EXPECT_EQ(describe_missing_ranks(layout, {{}, {8, 9, 10, 11}, {12, 13, 14, 15}, ServerState::kSilent}),
            "missing: ranks 8-11 (all of node003), and perhaps others; slurmstepd on this node stopped answering after "
            "it queried node003, as happens when all ranks of a node have ended");
  // The ranks of the own node were queried before.
  EXPECT_EQ(
      describe_missing_ranks(layout, {{1, 13}, {8, 9, 10, 11}, {}, ServerState::kSilent}),
      "missing: rank 1 (node001, local rank 1), ranks 8-11 (all of node003), rank 13 (node004, local rank 1), and "
      "perhaps others; slurmstepd on this node stopped answering after it queried node003, as happens when all ranks "
      "of a node have ended");
}

TEST(MissingRanks, AreOnOneOfTheNodesThatWereQueriedAtOnce) {
  const auto layout = block_layout(4, 2);
  EXPECT_EQ(
      describe_missing_ranks(layout, {{}, {2, 3, 4, 5}, {}, ServerState::kSilent}),
      "missing: some of ranks 2-3 (all of node002), ranks 4-5 (all of node003), and perhaps others; slurmstepd on this "
      "node stopped answering after it queried their nodes, as happens when all ranks of a node have ended");
  EXPECT_EQ(describe_missing_ranks(layout, {{1}, {2, 3, 4, 5}, {}, ServerState::kSilent}),
            "missing: rank 1 (node001, local rank 1), and some of ranks 2-3 (all of node002), ranks 4-5 (all of "
            "node003), and perhaps others; slurmstepd on this node stopped answering after it queried their nodes, as "
            "happens when all ranks of a node have ended");
}

TEST(MissingRanks, ARankIsUnknownIfTheServerDidNotAnswer) {
  const auto layout = block_layout(2, 2);
  EXPECT_EQ(describe_missing_ranks(layout, {{}, {}, {1, 2, 3}, ServerState::kSilent}),
            "missing or state unknown: rank 1 (node001, local rank 1), ranks 2-3 (all of node002); slurmstepd on this "
            "node no longer answers, as happens after it queries a node where all ranks have ended");
  EXPECT_EQ(describe_missing_ranks(layout, {{1}, {}, {2, 3}, ServerState::kSilent}),
            "missing: rank 1 (node001, local rank 1); missing or state unknown: ranks 2-3 (all of node002); slurmstepd "
            "on this node no longer answers, as happens after it queries a node where all ranks have ended");
  EXPECT_EQ(
      describe_missing_ranks(layout, {{}, {}, {1, 2, 3}, ServerState::kEnded}),
      "missing or state unknown: rank 1 (node001, local rank 1), ranks 2-3 (all of node002); slurmstepd on this node "
      "has ended");
  // A step on one node has no other node to query.
  EXPECT_EQ(describe_missing_ranks(block_layout(1, 2), {{}, {}, {1}, ServerState::kSilent}),
            "missing or state unknown: rank 1 (node001, local rank 1); slurmstepd on this node no longer answers");
}

TEST(MissingRanks, AsksEveryNodeOnceInTurnsThatDifferByOne) {
  for (const std::size_t count : {0U, 1U, 63U, 64U, 65U, 128U, 129U, 65536U}) {
    std::vector<NodeIndex> nodes(count);
    std::iota(nodes.begin(), nodes.end(), NodeIndex{7});
    const auto turns = deal_turns(nodes, 64);
    EXPECT_EQ(turns.size(), std::min<std::size_t>(count, 64));
    std::vector<NodeIndex> asked;
    for (const auto& turn : turns) {
      EXPECT_GE(turn.size(), count / 64);
      EXPECT_LE(turn.size(), (count + 63) / 64);
      asked.insert(asked.end(), turn.begin(), turn.end());
    }
    EXPECT_EQ(asked, nodes) << count;
  }
}

}  // namespace
}  // namespace bootstrap
