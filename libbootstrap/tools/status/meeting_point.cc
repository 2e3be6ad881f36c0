// Where the ranks of a step meet, by their TCP connections.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/meeting_point.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/util/text.h"

namespace bootstrap {
namespace {

bool has(const std::vector<std::uint64_t>& ports, std::uint64_t port) {
  return std::find(ports.begin(), ports.end(), port) != ports.end();
}

// `end`: ":29500" for the remote port, "29500:" for the own one.
bool has_end(const std::vector<std::string>& links, const std::string& end) {
  return std::any_of(links.begin(), links.end(), [&end](const std::string& link) {
    return end.front() == ':' ? link.ends_with(end) : link.starts_with(end);
  });
}

MeetingPoint look_at(const std::vector<SeenRank>& ranks, std::string name, std::uint64_t port) {
  MeetingPoint point{.name = std::move(name), .port = port, .node = {}, .connected = {}};
  std::size_t guests = 0;
  for (const auto& rank : ranks) {
    const auto& sight = rank.sight;
    const bool listens = has(sight.listens, port);
    if ((listens || has(sight.task_listens, port)) && point.node.empty()) point.node = sight.node;
    const bool is_guest = !listens && has_end(sight.links, cat({":", std::to_string(port)}));
    guests += is_guest ? 1 : 0;
    point.connected.push_back(is_guest || listens || has_end(sight.links, cat({std::to_string(port), ":"})));
  }
  point.is_listened = guests == 0 && !point.node.empty();
  if (point.node.empty()) point.node = ranks.front().sight.node;
  return point;
}

std::size_t count_connected(const MeetingPoint& point) {
  return static_cast<std::size_t>(std::count(point.connected.begin(), point.connected.end(), true));
}

}  // namespace

std::optional<MeetingPoint> find_meeting_point(const std::vector<SeenRank>& ranks) {
  std::set<std::string> named;
  std::optional<MeetingPoint> best;
  const auto keep = [&best](MeetingPoint point) {
    if (count_connected(point) > (best ? count_connected(*best) : 0)) best = std::move(point);
  };
  for (const auto& rank : ranks) named.insert(rank.sight.meetings.begin(), rank.sight.meetings.end());
  for (const auto& name : named) {
    keep(look_at(ranks, printable(name),
                 parse_unsigned(std::string_view(name).substr(name.rfind(' ') + 1)).value_or(0)));
  }
  // Ranks of MPI connect when they first have something to send, and ports of one number are on several nodes.
  if (best || ranks.empty() || (ranks.front().sight.framework != "PyTorch" && ranks.front().sight.framework != "JAX")) {
    return best;
  }
  for (const auto port : ranks.front().sight.listens) {
    auto point = look_at(ranks, cat({"port ", std::to_string(port)}), port);
    const auto listeners = std::count_if(ranks.begin(), ranks.end(),
                                         [port](const SeenRank& rank) { return has(rank.sight.listens, port); });
    if (listeners == 1 && 2 * count_connected(point) > ranks.size() && !point.is_listened) keep(std::move(point));
  }
  return best;
}

std::vector<bool> linked_ranks(const std::vector<SeenRank>& ranks, std::uint64_t port) {
  std::map<std::string, std::size_t> owners;  // of each end
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (const auto& link : ranks[i].sight.links) owners.emplace(link, i);
  }
  const auto meeting = std::to_string(port);
  std::vector<bool> linked(ranks.size());
  for (const auto& [link, rank] : owners) {
    const auto colon = link.find(':');
    const auto own = link.substr(0, colon);
    const auto remote = link.substr(std::min(colon + 1, link.size()));
    const auto other = owners.find(cat({remote, ":", own}));
    if (own != meeting && remote != meeting && other != owners.end() && other->second != rank) linked[rank] = true;
  }
  return linked;
}

}  // namespace bootstrap
