// Layouts for tests that need some, not a particular one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/step/rank_layout.h"

namespace bootstrap {

// node001, node002, ... with as many ranks each, in blocks.
inline Layout block_layout(std::uint32_t nodes, std::uint32_t ranks_per_node) {
  const std::vector<std::uint32_t> counts(nodes, ranks_per_node);
  std::string names = "node";
  if (nodes > 1) {
    const std::string last = std::to_string(nodes);
    names += "[001-" + std::string(3 - std::min<std::size_t>(3, last.size()), '0') + last + "]";
  } else {
    names += "001";
  }
  return *Layout::make({{*parse_host_list(names), counts, deal_block(counts)}});
}

}  // namespace bootstrap
