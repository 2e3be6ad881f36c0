// How missing ranks are named to people: each with its host and local rank, and a bounded number of them.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/rank_names.h"

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxItems = 8;

// Ranks [begin, end) of the list that are all ranks of one node and follow one another: worth one word, not one each.
std::size_t whole_node_end(const Layout& layout, const std::vector<Rank>& ranks, std::size_t begin) {
  const Place& first = layout.place(ranks[begin]);
  const std::size_t end = begin + first.local_size;
  if (first.local_size < 2 || first.local_rank != 0 || end > ranks.size()) return begin;
  for (std::size_t i = begin; i < end; ++i) {
    if (ranks[i] != ranks[begin] + (i - begin) || layout.place(ranks[i]).node != first.node) return begin;
  }
  return end;
}

}  // namespace

std::string describe_rank(const Layout& layout, Rank rank) {
  return cat({"rank ", std::to_string(rank), " (", layout.host_of(rank), ", local rank ",
              std::to_string(layout.place(rank).local_rank), ")"});
}

std::string name_ranks(const Layout& layout, const std::vector<Rank>& ranks) {
  if (ranks.size() == layout.size()) return cat({"all ", std::to_string(ranks.size()), " ranks"});
  std::string text;
  std::size_t at = 0;
  for (std::size_t items = 0; at < ranks.size(); ++items) {
    if (items == kMaxItems) return cat({text, " and ", std::to_string(ranks.size() - at), " more"});
    if (items != 0) text += ", ";
    const std::size_t end = whole_node_end(layout, ranks, at);
    if (end > at) {
      text += cat({"ranks ", std::to_string(ranks[at]), "-", std::to_string(ranks[end - 1]), " (all of ",
                   layout.host_of(ranks[at]), ")"});
      at = end;
    } else {
      text += describe_rank(layout, ranks[at++]);
    }
  }
  return text;
}

std::string missing_ranks(const Layout& layout, const std::vector<Rank>& ranks) {
  return cat({"missing: ", name_ranks(layout, ranks)});
}

}  // namespace bootstrap
