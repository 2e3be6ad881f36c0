// How missing ranks are named to people: each with its host and local rank, and a bounded number of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/step/rank_layout.h"

namespace bootstrap {

// "rank 5 (node002, local rank 1)".
std::string describe_rank(const Layout& layout, Rank rank);

// The same for several, ascending and not empty: "ranks 8-11 (all of node003), rank 13 (node004, local rank 1)",
// "all 32 ranks"; at most 8 items.
std::string name_ranks(const Layout& layout, const std::vector<Rank>& ranks);

// "missing: rank 5 (node002, local rank 1)", "missing: ranks 8-11 (all of node003), rank 13 (node004, local rank 1)";
// after eight items "and 40 more". `ranks` ascending, not empty.
std::string missing_ranks(const Layout& layout, const std::vector<Rank>& ranks);

}  // namespace bootstrap
