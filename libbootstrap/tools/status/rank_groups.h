// Ranks that are alike, as one row each, and how sets of ranks are named.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/status/judgement.h"

namespace bootstrap {

// Places in Judgement::ranks.
using RankGroup = std::vector<std::size_t>;

// The smallest group first, and in it the lowest rank.
std::vector<RankGroup> group_ranks(const std::vector<SeenRank>& ranks);

// "rank 5 (node002, local rank 1, pid 4711)", "ranks 8-15 (all of node003)", "all 8 ranks".
std::string name_group(const std::vector<SeenRank>& ranks, const RankGroup& group);

// "0-4,6-7".
std::string list_ranks(const std::vector<SeenRank>& ranks, const RankGroup& group);

// "node001", "2 nodes".
std::string name_nodes(const std::vector<SeenRank>& ranks, const RankGroup& group);

}  // namespace bootstrap
