// Which rank makes a unique id and whose id a rank uses, when a communicator has several roots: NCCL's own rule.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/nccl_roots.h"

#include <algorithm>

namespace bootstrap {

// The ranks are cut into `roots` runs of neighbours; the first ranks % roots runs are one longer than the others
// (rootIdFromRank and firstRankFromRoot in NCCL's src/bootstrap.cc; "rankHasRoot" in its documentation).

std::uint32_t root_count(std::uint32_t ranks, std::uint32_t ranks_per_root) {
  const auto per_root = std::max<std::uint32_t>(1, ranks_per_root);
  return std::max<std::uint32_t>(1, ranks / per_root + (ranks % per_root != 0 ? 1 : 0));
}

std::uint32_t rank_of_root(std::uint32_t root, std::uint32_t ranks, std::uint32_t roots) {
  return root * (ranks / roots) + std::min(root, ranks % roots);
}

}  // namespace bootstrap
