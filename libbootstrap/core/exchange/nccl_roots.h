// Which rank makes a unique id and whose id a rank uses, when a communicator has several roots: NCCL's own rule.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace bootstrap {

// More ranks on one root make NCCL delay their check-in (NCCL_UID_STAGGER_THRESHOLD), about 0.14 ms for each rank.
inline constexpr std::uint32_t kRanksPerRoot = 256;

// ceil(ranks / ranks_per_root); at least 1.
std::uint32_t root_count(std::uint32_t ranks, std::uint32_t ranks_per_root = kRanksPerRoot);

// The rank that makes id number `root` of `roots` for `ranks` ranks. Preconditions: 1 <= roots <= ranks, root < roots.
std::uint32_t rank_of_root(std::uint32_t root, std::uint32_t ranks, std::uint32_t roots);

}  // namespace bootstrap
