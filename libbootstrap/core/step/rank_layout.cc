// Which rank runs on which host, the local, node and cross ranks that follow from it, and how messages name ranks.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/rank_layout.h"

#include <algorithm>
#include <numeric>

#include "core/util/text.h"

namespace bootstrap {
namespace {

Error too_large() {
  return {ErrorCode::kLimit, cat({"a step of more than ", std::to_string(kMaxRanks), " tasks or ",
                                  std::to_string(kMaxNodes), " nodes is not supported"})};
}

std::size_t total(const std::vector<std::uint32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

std::optional<std::vector<std::uint32_t>> read_runs(std::string_view text, std::string_view times, std::string_view end,
                                                    std::size_t most) {
  std::vector<std::uint32_t> values;
  for (auto item : split(text, ',')) {
    std::optional<std::size_t> count = 1;
    const auto value = parse_unsigned<std::uint32_t>(item.substr(0, item.find(times)), kMaxRanks);
    if (const auto at = item.find(times); at != std::string_view::npos) {
      if (!item.ends_with(end)) return std::nullopt;
      item.remove_suffix(end.size());
      count = parse_unsigned(item.substr(at + times.size()), kMaxRanks);
    }
    if (!value || !count || *count == 0 || values.size() + *count > most) return std::nullopt;
    values.insert(values.end(), *count, *value);
  }
  return values;
}

Result<std::vector<std::uint32_t>> parse_tasks_per_node(std::string_view text) {
  auto counts = read_runs(text, "(x", ")", kMaxNodes);
  if (!counts) {
    return fail(ErrorCode::kInvalid,
                cat({"the tasks per node, ", quote(text), ", are not a list such as \"2(x3),1\""}));
  }
  if (total(*counts) > kMaxRanks) return fail(too_large());
  return std::move(*counts);
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

Status Layout::add_component(LayoutComponent& component,
                             std::unordered_map<std::string_view, std::uint32_t>& node_of_host) {
  const auto count = component.nodes.size();
  if (count != component.tasks_per_node.size()) {
    return fail(ErrorCode::kDisagreement,
                cat({"the node list names ", std::to_string(count), " nodes, but there are task counts for ",
                     std::to_string(component.tasks_per_node.size())}));
  }
  if (count > kMaxNodes || hosts_.size() + count > kMaxNodes ||
      places_.size() + component.node_of_rank.size() > kMaxRanks) {
    return fail(too_large());
  }
  std::vector<std::uint32_t> node_here;  // place in hosts_ of each node of the component
  node_here.reserve(count);
  for (auto& host : component.nodes) {
    auto entry = node_of_host.find(host);
    if (entry == node_of_host.end()) {
      const auto next = static_cast<std::uint32_t>(hosts_.size());
      entry = node_of_host.emplace(hosts_.emplace_back(std::move(host)), next).first;
    }
    node_here.push_back(entry->second);
  }
  ranks_on_node_.resize(hosts_.size());
  lowest_rank_.resize(hosts_.size(), UINT32_MAX);
  for (const auto index : component.node_of_rank) {
    if (index >= node_here.size()) return fail(ErrorCode::kInvalid, "a rank is on a node that is not in the node list");
    const auto node = node_here[index];
    const auto rank = static_cast<Rank>(places_.size());
    lowest_rank_[node] = std::min(lowest_rank_[node], rank);
    places_.push_back({.rank = rank, .node = node, .local_rank = ranks_on_node_[node]++});
  }
  return {};
}

// Node ranks, and what follows from them, once every rank has its node.
void Layout::number_nodes() {
  by_node_rank_.resize(hosts_.size());
  std::iota(by_node_rank_.begin(), by_node_rank_.end(), 0U);
  std::stable_sort(by_node_rank_.begin(), by_node_rank_.end(),
                   [&](auto a, auto b) { return lowest_rank_[a] < lowest_rank_[b]; });

  std::vector<std::uint32_t> nodes_with(most_on_a_node());  // [l]: nodes so far that have a rank with local rank l
  std::vector<std::uint32_t> node_rank(hosts_.size());
  std::vector<std::size_t> first_cross(hosts_.size());  // where a node's cross ranks start in `cross`
  std::vector<std::uint32_t> cross;
  cross.reserve(places_.size());
  for (std::uint32_t rank = 0; rank < by_node_rank_.size(); ++rank) {
    const auto node = by_node_rank_[rank];
    node_rank[node] = rank;
    first_cross[node] = cross.size();
    for (std::uint32_t local = 0; local < ranks_on_node_[node]; ++local) cross.push_back(nodes_with[local]++);
  }
  for (auto& place : places_) {
    place.local_size = ranks_on_node_[place.node];
    place.node_rank = node_rank[place.node];
    place.cross_rank = cross[first_cross[place.node] + place.local_rank];
    place.cross_size = nodes_with[place.local_rank];
  }
}

Result<Layout> Layout::make(std::vector<LayoutComponent> components) {
  Layout layout;
  std::size_t nodes = 0;
  for (const auto& component : components) nodes += component.nodes.size();
  layout.hosts_.reserve(std::min(nodes, kMaxNodes));  // the names stay where they are
  std::unordered_map<std::string_view, std::uint32_t> node_of_host;
  node_of_host.reserve(std::min(nodes, kMaxNodes));
  for (auto& component : components) {
    const auto added = layout.add_component(component, node_of_host);
    if (!added) return fail(added.error());
  }
  layout.number_nodes();
  return layout;
}

std::uint32_t Layout::most_on_a_node() const {
  return ranks_on_node_.empty() ? 0 : *std::max_element(ranks_on_node_.begin(), ranks_on_node_.end());
}

std::uint32_t Layout::least_on_a_node() const {
  return ranks_on_node_.empty() ? 0 : *std::min_element(ranks_on_node_.begin(), ranks_on_node_.end());
}

std::string describe_spread(std::size_t tasks, std::uint32_t least, std::uint32_t most) {
  return cat({"Slurm spreads the ", counted(tasks, "task"), " unevenly (", std::to_string(least), " to ",
              std::to_string(most), " on a node)"});
}

std::string note_spread(const Layout& layout) {
  const auto least = layout.least_on_a_node();
  const auto most = layout.most_on_a_node();
  if (least == most || layout.size() % layout.node_count() != 0) return {};
  return cat({describe_spread(layout.size(), least, most),
              "; use --ntasks-per-node=", std::to_string(layout.size() / layout.node_count()), " for an even spread"});
}

std::vector<Rank> Layout::ranks_on(std::uint32_t node) const {
  std::vector<Rank> ranks;
  for (const auto& place : places_) {
    if (place.node == node) ranks.push_back(place.rank);
  }
  return ranks;
}

namespace {

constexpr std::size_t kMaxItems = 8;

// Ranks [begin, end) of the list that are all ranks of one node and follow one another: named together.
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
