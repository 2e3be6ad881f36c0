// The message about ranks that did not call. A rank with an unknown state is not called missing.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "comm/pmix/allgather.h"
#include "known_layout.h"

namespace bootstrap {
namespace {

TEST(MissingRanks, AreNamedForSureIfTheServerAnswers) {
  EXPECT_EQ(describe_missing_ranks(block_layout(4, 4), {{5, 8, 9, 10, 11}, {}, {}, ServerState::kAnswers}),
            "missing: rank 5 (node002, local rank 1), ranks 8-11 (all of node003)");
}

TEST(MissingRanks, AreOnTheNodeThatAServerQueriedBeforeItStoppedAnswering) {
  const auto layout = block_layout(4, 4);
  EXPECT_EQ(describe_missing_ranks(layout, {{}, {8, 9, 10, 11}, {12, 13, 14, 15}, ServerState::kSilent}),
            "missing: ranks 8-11 (all of node003), and perhaps others; slurmstepd on this node stopped answering after "
            "it queried node003, as happens when all ranks of a node have ended");
  // The ranks of this node and of node004 were queried before.
  EXPECT_EQ(
      describe_missing_ranks(layout, {{1, 13}, {8, 9, 10, 11}, {}, ServerState::kSilent}),
      "missing: rank 1 (node001, local rank 1), ranks 8-11 (all of node003), rank 13 (node004, local rank 1), and "
      "perhaps others; slurmstepd on this node stopped answering after it queried node003, as happens when all ranks "
      "of a node have ended");
}

TEST(MissingRanks, AreUnknownIfTheServerDidNotAnswer) {
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

}  // namespace
}  // namespace bootstrap
