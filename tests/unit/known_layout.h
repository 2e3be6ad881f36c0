// Layouts for tests that need any layout.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/step/rank_layout.h"

namespace bootstrap {

// node001, node002, ... with these numbers of ranks, in blocks.
inline Layout layout_of(const std::vector<std::uint32_t>& ranks_per_node) {
  const auto last = std::to_string(1000 + ranks_per_node.size()).substr(1);
  return *Layout::make({{*parse_host_list("node[001-" + last + "]"), ranks_per_node, deal_block(ranks_per_node)}});
}

inline Layout block_layout(std::uint32_t nodes, std::uint32_t ranks_per_node) {
  return layout_of(std::vector<std::uint32_t>(nodes, ranks_per_node));
}

}  // namespace bootstrap
