// Which rank runs on which host: counts, rank maps and everything that follows from them (local, node, cross ranks).
// SPDX-License-Identifier: Apache-2.0
#include "core/layout.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "core/text.h"

namespace bootstrap {
namespace {

Error too_many_ranks() {
  return {ErrorCode::kLimit, cat({"a step of more than ", std::to_string(kMaxRanks), " tasks is not supported"})};
}

// "2(x3)" or "2"; appends and answers false when it is neither or too large.
bool append_counts(std::string_view item, std::vector<std::uint32_t>& counts) {
  std::uint64_t repeat = 1;
  const auto bracket = item.find("(x");
  if (bracket != std::string_view::npos) {
    if (item.back() != ')') return false;
    const auto times = parse_unsigned(item.substr(bracket + 2, item.size() - bracket - 3), kMaxRanks);
    if (!times || *times == 0) return false;
    repeat = *times;
    item = item.substr(0, bracket);
  }
  const auto count = parse_unsigned(item, kMaxRanks);
  if (!count || counts.size() + repeat > kMaxRanks) return false;
  counts.insert(counts.end(), repeat, static_cast<std::uint32_t>(*count));
  return true;
}

std::size_t total(const std::vector<std::uint32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

Result<std::vector<std::uint32_t>> parse_tasks_per_node(std::string_view text) {
  std::vector<std::uint32_t> counts;
  for (const auto item : split(text, ',')) {
    if (!append_counts(item, counts)) {
      return fail(ErrorCode::kInvalid, cat({"tasks per node ", quoted(text), " is not a list like \"2(x3),1\""}));
    }
  }
  if (total(counts) > kMaxRanks) return fail(too_many_ranks());
  return counts;
}

std::vector<NodeIndex> deal_block(const std::vector<std::uint32_t>& tasks_per_node) {
  std::vector<NodeIndex> nodes;
  nodes.reserve(total(tasks_per_node));
  for (NodeIndex node = 0; node < tasks_per_node.size(); ++node) {
    nodes.insert(nodes.end(), tasks_per_node[node], node);
  }
  return nodes;
}

std::vector<NodeIndex> deal_plane(const std::vector<std::uint32_t>& tasks_per_node, std::uint32_t plane) {
  std::vector<NodeIndex> nodes;
  const auto size = total(tasks_per_node);
  nodes.reserve(size);
  auto left = tasks_per_node;
  std::vector<NodeIndex> open(left.size());  // only nodes that still have tasks: a long tail costs no empty turns
  std::iota(open.begin(), open.end(), NodeIndex{0});
  while (nodes.size() < size && plane > 0) {
    std::size_t kept = 0;
    for (const auto node : open) {
      const auto dealt = std::min(plane, left[node]);
      nodes.insert(nodes.end(), dealt, node);
      left[node] -= dealt;
      if (left[node] > 0) open[kept++] = node;
    }
    open.resize(kept);
  }
  return nodes;
}

Result<Layout> Layout::make(const std::vector<LayoutComponent>& components) {
  Layout layout;
  std::vector<std::uint32_t> ranks_on_node;
  std::vector<std::uint32_t> lowest_rank;
  std::unordered_map<std::string, std::uint32_t> node_of_host;
  for (const auto& component : components) {
    if (component.nodes.size() != component.tasks_per_node.size()) {
      return fail(ErrorCode::kDisagreement,
                  cat({"the node list names ", std::to_string(component.nodes.size()),
                       " nodes, but there are task counts for ", std::to_string(component.tasks_per_node.size())}));
    }
    std::vector<std::uint32_t> node_here;  // place in hosts_ of each node of the component
    for (auto& host : component.nodes.expand()) {
      const auto next = static_cast<std::uint32_t>(layout.hosts_.size());
      const auto [entry, is_new] = node_of_host.try_emplace(host, next);
      if (is_new) layout.hosts_.push_back(std::move(host));
      node_here.push_back(entry->second);
    }
    ranks_on_node.resize(layout.hosts_.size());
    lowest_rank.resize(layout.hosts_.size(), UINT32_MAX);
    if (layout.places_.size() + component.node_of_rank.size() > kMaxRanks) {
      return fail(too_many_ranks());
    }
    for (const auto index : component.node_of_rank) {
      if (index >= node_here.size()) {
        return fail(ErrorCode::kInvalid, "a rank is on a node outside the node list");
      }
      const auto node = node_here[index];
      const auto rank = static_cast<Rank>(layout.places_.size());
      lowest_rank[node] = std::min(lowest_rank[node], rank);
      layout.places_.push_back({.rank = rank, .node = node, .local_rank = ranks_on_node[node]++});
    }
  }

  // Nodes in order of their lowest rank; a node without a task of this step comes last and has no rank to care.
  auto& order = layout.by_node_rank_;
  order.resize(layout.hosts_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return lowest_rank[a] < lowest_rank[b]; });

  // nodes_with[l]: how many of the nodes seen so far have a rank with local rank l.
  const auto most = ranks_on_node.empty() ? 0U : *std::max_element(ranks_on_node.begin(), ranks_on_node.end());
  std::vector<std::uint32_t> nodes_with(most);
  std::vector<std::uint32_t> node_rank(order.size());
  std::vector<std::size_t> first_cross(order.size());  // where the node's cross ranks start in `cross`
  std::vector<std::uint32_t> cross;
  cross.reserve(layout.places_.size());
  for (std::uint32_t rank = 0; rank < order.size(); ++rank) {
    const auto node = order[rank];
    node_rank[node] = rank;
    first_cross[node] = cross.size();
    for (std::uint32_t local = 0; local < ranks_on_node[node]; ++local) cross.push_back(nodes_with[local]++);
  }
  for (auto& place : layout.places_) {
    place.local_size = ranks_on_node[place.node];
    place.node_rank = node_rank[place.node];
    place.cross_rank = cross[first_cross[place.node] + place.local_rank];
    place.cross_size = nodes_with[place.local_rank];
  }
  return layout;
}

std::vector<Rank> Layout::ranks_on(std::uint32_t node) const {
  std::vector<Rank> ranks;
  for (const auto& place : places_) {
    if (place.node == node) ranks.push_back(place.rank);
  }
  return ranks;
}

}  // namespace bootstrap
