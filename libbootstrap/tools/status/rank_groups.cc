// Ranks that are alike, as one row each, and how sets of ranks are named.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/rank_groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxNames = 3;

std::set<std::string> nodes_of(const std::vector<SeenRank>& ranks, const RankGroup& group) {
  std::set<std::string> nodes;
  for (const auto place : group) nodes.insert(ranks[place].sight.node);
  nodes.erase("");
  return nodes;
}

bool is_whole(const std::vector<SeenRank>& ranks, const RankGroup& group, const std::set<std::string>& nodes) {
  const auto on_these =
      std::count_if(ranks.begin(), ranks.end(), [&](const SeenRank& rank) { return nodes.contains(rank.sight.node); });
  return static_cast<std::size_t>(on_these) == group.size() && group.size() > nodes.size();
}

std::string join(const std::set<std::string>& nodes) {
  std::string text;
  for (const auto& node : nodes) text += cat({text.empty() ? "" : ", ", printable(node)});
  return text;
}

std::string name_one(const RankSight& sight) {
  std::string text = cat({"rank ", std::to_string(sight.rank)});
  if (sight.node.empty()) return text;
  text += cat({" (", printable(sight.node), ", local rank ", std::to_string(sight.local_rank)});
  if (sight.pid != 0) text += cat({", pid ", std::to_string(sight.pid)});
  return text + ")";
}

}  // namespace

std::vector<RankGroup> group_ranks(const std::vector<SeenRank>& ranks) {
  std::vector<std::uint64_t> cpu;
  cpu.reserve(ranks.size());
  for (const auto& rank : ranks) cpu.push_back(rank.sight.cpu);
  const auto apart = far_apart(cpu);
  std::map<std::tuple<Phase, bool, std::string, std::string, std::string, std::vector<std::string>>, RankGroup> by_look;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& sight = ranks[i].sight;
    // A rank that runs and waits in turn is somewhere else at each look.
    by_look[{ranks[i].phase, !apart.empty() && apart[i], sight.is_still ? sight.waits : "", sight.child, sight.unread,
             sight.stack}]
        .push_back(i);
  }
  std::vector<RankGroup> groups;
  groups.reserve(by_look.size());
  for (auto& [look, group] : by_look) groups.push_back(std::move(group));
  std::stable_sort(groups.begin(), groups.end(), [](const RankGroup& one, const RankGroup& other) {
    return std::pair(one.size(), one.front()) < std::pair(other.size(), other.front());
  });
  return groups;
}

std::string list_ranks(const std::vector<SeenRank>& ranks, const RankGroup& group) {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(group.size());
  for (const auto place : group) numbers.push_back(ranks[place].sight.rank);
  return write_ranges(numbers);
}

std::string name_nodes(const std::vector<SeenRank>& ranks, const RankGroup& group) {
  const auto nodes = nodes_of(ranks, group);
  return nodes.size() == 1 ? printable(*nodes.begin()) : nodes.empty() ? "-" : counted(nodes.size(), "node");
}

std::string name_group(const std::vector<SeenRank>& ranks, const RankGroup& group) {
  if (group.size() == 1) return name_one(ranks[group.front()].sight);
  if (group.size() == ranks.size()) return cat({"all ", std::to_string(group.size()), " ranks"});
  const auto nodes = nodes_of(ranks, group);
  auto text = cat({"ranks ", list_ranks(ranks, group)});
  if (nodes.empty()) return text;
  const auto names = nodes.size() <= kMaxNames ? join(nodes) : counted(nodes.size(), "node");
  return cat({text, " (", is_whole(ranks, group, nodes) ? "all of " : "", names, ")"});
}

}  // namespace bootstrap
