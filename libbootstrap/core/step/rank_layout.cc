// Which rank runs on which host, the local, node and cross ranks that follow from it, how messages name ranks, and the
// text in which srun hands the layout to the nodes.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/rank_layout.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/hardware/network.h"
#include "core/settings/settings.h"
#include "core/settings/variables.h"
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

constexpr std::size_t kMaxItems = 8;

// The end of the ranks from `begin` on that are all ranks of one node in sequence, to be named together; else `begin`.
std::size_t whole_node_end(const Layout& layout, const std::vector<Rank>& ranks, std::size_t begin) {
  const Place& first = layout.place(ranks[begin]);
  const std::size_t end = begin + first.local_size;
  if (first.local_size < 2 || first.local_rank != 0 || end > ranks.size()) return begin;
  for (std::size_t i = begin; i < end; ++i) {
    if (ranks[i] != ranks[begin] + (i - begin) || layout.place(ranks[i]).node != first.node) return begin;
  }
  return end;
}

// "12.0/", in front of a layout.
std::string owner_of_layout(std::uint32_t job, std::uint32_t step) {
  return cat({std::to_string(job), ".", std::to_string(step), "/"});
}

// "2,4x3" for 2, 4, 4, 4.
std::string write_runs(const std::vector<std::uint32_t>& values) {
  std::string text;
  for (std::size_t start = 0; start < values.size();) {
    auto end = start + 1;
    while (end < values.size() && values[end] == values[start]) ++end;
    text += cat({start == 0 ? "" : ",", std::to_string(values[start])});
    if (end - start > 1) text += cat({"x", std::to_string(end - start)});
    start = end;
  }
  return text;
}

// A plane size can only be the length of the first run.
std::string write_map(const ComponentText& component) {
  const auto& map = component.node_of_rank;
  if (map == deal_block(component.tasks_per_node)) return "block";
  if (map == deal_cyclic(component.tasks_per_node)) return "cyclic";
  std::uint32_t plane = 1;
  while (plane < map.size() && map[plane] == map[0]) ++plane;
  if (map == deal_plane(component.tasks_per_node, plane)) return cat({"plane:", std::to_string(plane)});
  return cat({"map:", write_runs(map)});
}

std::optional<std::vector<NodeIndex>> read_map(std::string_view text, const std::vector<std::uint32_t>& counts) {
  if (text == "block") return deal_block(counts);
  if (text == "cyclic") return deal_cyclic(counts);
  if (text.starts_with("plane:")) {
    const auto plane = parse_unsigned<std::uint32_t>(text.substr(6), kMaxRanks);
    if (!plane || *plane == 0) return std::nullopt;
    return deal_plane(counts, *plane);
  }
  if (!text.starts_with("map:")) return std::nullopt;
  auto map = read_runs(text.substr(4), "x", "", total(counts));
  if (!map) return std::nullopt;
  std::vector<std::uint32_t> seen(counts.size());
  for (const auto node : *map) {
    if (node >= seen.size()) return std::nullopt;
    ++seen[node];
  }
  if (seen != counts) return std::nullopt;
  return map;
}

Error unreadable(std::string_view text) {
  return {ErrorCode::kInvalid,
          cat({"cannot read ", kLayoutVariable, "=", quote(text), ": another version wrote it, or it was changed"})};
}

Error too_large(std::string_view text) {
  return {ErrorCode::kLimit, cat({"cannot read ", kLayoutVariable, "=", quote(text),
                                  ": it has more tasks or nodes than a step can have"})};
}

// "44;n[1-2];2x2;block": the job id, nodes, counts and map of one component. Reads all but the map.
Result<LayoutComponent> read_fields(const std::vector<std::string_view>& fields, std::string_view whole) {
  const auto job = parse_unsigned<std::uint32_t>(fields[0]).value_or(0);
  if (job == 0) return fail(unreadable(whole));
  auto counts = read_runs(fields[2], "x", "", kMaxNodes);
  // A node without a task is no node of the step.
  if (!counts || std::find(counts->begin(), counts->end(), 0U) != counts->end()) return fail(unreadable(whole));
  auto nodes = parse_host_list(fields[1], counts->size());
  if (!nodes) return fail(nodes.error());
  if (counts->size() != nodes->size()) return fail(unreadable(whole));
  return LayoutComponent{std::move(*nodes), std::move(*counts), {}, job};
}

std::string write_meeting(const MeetingAddresses& meeting) {
  auto text = cat({"@", meeting.ours, ",", meeting.users, ",", meeting.of_node});
  while (text.ends_with(',')) text.pop_back();
  return text == "@" ? std::string() : text;
}

std::optional<MeetingAddresses> read_meeting(std::string_view text) {
  const auto fields = split(text, ',');
  MeetingAddresses meeting;
  const std::array into{&meeting.ours, &meeting.users, &meeting.of_node};
  if (fields.size() > into.size()) return std::nullopt;
  for (std::size_t i = 0; i < fields.size(); ++i) *into[i] = fields[i];
  const auto is_wrong = [](const std::string& address) { return !address.empty() && !parse_ip_address(address); };
  if (is_wrong(meeting.ours) || is_wrong(meeting.users)) return std::nullopt;
  if (!meeting.of_node.empty() && !is_host_name(meeting.of_node)) return std::nullopt;
  return meeting;
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

Status Layout::add_component(const LayoutComponent& component,
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
  for (const auto& host : component.nodes) {
    auto entry = node_of_host.find(host);
    if (entry == node_of_host.end()) {
      const auto next = static_cast<std::uint32_t>(hosts_.size());
      entry = node_of_host.emplace(hosts_.emplace_back(host), next).first;
    }
    node_here.push_back(entry->second);
  }
  places_.reserve(places_.size() + component.node_of_rank.size());
  for (const auto index : component.node_of_rank) {
    if (index >= node_here.size()) return fail(ErrorCode::kInvalid, "a rank is on a node that is not in the node list");
    places_.push_back({.rank = static_cast<Rank>(places_.size()), .node = node_here[index]});
  }
  return {};
}

// Computes what follows from the node of each rank.
void Layout::number_nodes() {
  first_.resize(hosts_.size() + 1);
  for (const auto& place : places_) ++first_[place.node + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  by_node_.resize(places_.size());
  auto next = first_;
  for (auto& place : places_) {
    place.local_size = first_[place.node + 1] - first_[place.node];
    place.local_rank = next[place.node] - first_[place.node];
    if (place.local_rank == 0) by_node_rank_.push_back(place.node);
    by_node_[next[place.node]++] = place.rank;
  }
  for (std::uint32_t node = 0; node < hosts_.size(); ++node) {
    if (first_[node] == first_[node + 1]) by_node_rank_.push_back(node);  // without a rank
  }

  std::vector<std::uint32_t> nodes_with(most_on_a_node());  // [l]: nodes so far that have a rank with local rank l
  for (std::uint32_t node_rank = 0; node_rank < by_node_rank_.size(); ++node_rank) {
    const auto node = by_node_rank_[node_rank];
    for (auto at = first_[node]; at < first_[node + 1]; ++at) {
      auto& place = places_[by_node_[at]];
      place.node_rank = node_rank;
      place.cross_rank = nodes_with[place.local_rank]++;
    }
  }
  for (auto& place : places_) place.cross_size = nodes_with[place.local_rank];
}

Result<Layout> Layout::make(const std::vector<LayoutComponent>& components) {
  Layout layout;
  std::size_t nodes = 0;
  for (const auto& component : components) nodes += component.nodes.size();
  layout.hosts_.reserve(std::min(nodes, kMaxNodes));  // node_of_host views the names, so none may move
  std::unordered_map<std::string_view, std::uint32_t> node_of_host;
  node_of_host.reserve(std::min(nodes, kMaxNodes));
  for (const auto& component : components) {
    const auto added = layout.add_component(component, node_of_host);
    if (!added) return fail(added.error());
  }
  layout.number_nodes();
  return layout;
}

std::uint32_t Layout::most_on_a_node() const {
  std::uint32_t most = 0;
  for (std::size_t node = 0; node < hosts_.size(); ++node) most = std::max(most, first_[node + 1] - first_[node]);
  return most;
}

std::vector<Rank> Layout::ranks_on(std::uint32_t node) const {
  return {by_node_.begin() + first_[node], by_node_.begin() + first_[node + 1]};
}

std::string describe_spread(std::size_t tasks, std::uint32_t least, std::uint32_t most) {
  return cat({"Slurm spreads the ", counted(tasks, "task"), " unevenly (", std::to_string(least), " to ",
              std::to_string(most), " on a node)"});
}

std::string note_spread(const Layout& layout) {
  const auto most = layout.most_on_a_node();
  auto least = most;
  for (Rank rank = 0; rank < layout.size(); ++rank) least = std::min(least, layout.place(rank).local_size);
  if (least == most || layout.size() % layout.node_count() != 0) return {};
  return cat({describe_spread(layout.size(), least, most),
              "; use --ntasks-per-node=", std::to_string(layout.size() / layout.node_count()), " for an even spread"});
}

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

Result<std::string> write_layout(std::uint32_t job, std::uint32_t step, const std::vector<ComponentText>& components,
                                 const MeetingAddresses& meeting) {
  auto text = owner_of_layout(job, step);
  for (const auto& component : components) {
    if (components.size() > 1) {
      if (&component != &components.front()) text += '/';
      text +=
          cat({std::to_string(component.job), ";", component.nodes, ";", write_runs(component.tasks_per_node), ";"});
    }
    text += write_map(component);
  }
  text += write_meeting(meeting);
  if (text.size() > kMaxLayoutText) {
    return fail(ErrorCode::kLimit, cat({"the rank order of this step takes ", std::to_string(text.size()),
                                        " bytes to describe, more than the ", std::to_string(kMaxLayoutText),
                                        " that fit in an environment variable; use --distribution=block or cyclic"}));
  }
  return text;
}

bool layout_is_for(std::string_view text, std::uint32_t job, std::uint32_t step) {
  return text.starts_with(owner_of_layout(job, step));
}

Result<LayoutText> read_layout(std::string_view text, const LayoutComponent& whole, std::size_t max_ranks) {
  if (text.size() > kMaxLayoutText) return fail(too_large(text));
  const auto body = text.substr(text.find('/') + 1);  // npos + 1 is 0
  const auto at = body.find('@');
  LayoutText layout;
  if (at != std::string_view::npos) {
    auto meeting = read_meeting(body.substr(at + 1));
    if (!meeting) return fail(unreadable(text));
    layout.meeting = std::move(*meeting);
  }
  const auto parts = split(body.substr(0, at), '/');
  if (parts.size() > kMaxComponents) return fail(too_large(text));
  std::size_t node_count = 0;
  std::size_t name_bytes = 0;
  std::size_t rank_count = 0;
  for (const auto part : parts) {
    const auto fields = split(part, ';');
    const bool is_whole = parts.size() == 1 && fields.size() == 1;
    if (!is_whole && fields.size() != 4) return fail(unreadable(text));
    auto own = is_whole ? Result<LayoutComponent>(whole) : read_fields(fields, text);
    if (!own) return fail(own.error());
    node_count += own->nodes.size();
    rank_count += total(own->tasks_per_node);
    for (const auto& node : own->nodes) name_bytes += node.size();
    const auto most_nodes = is_whole ? kMaxNodes : kMaxNodesOfStep;
    if (node_count > most_nodes || rank_count > max_ranks || name_bytes > kMaxNameBytes) return fail(too_large(text));
    auto map = read_map(fields.back(), own->tasks_per_node);
    if (!map) return fail(unreadable(text));
    own->node_of_rank = std::move(*map);
    layout.components.push_back(std::move(*own));
  }
  return layout;
}

}  // namespace bootstrap
