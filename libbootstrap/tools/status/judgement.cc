// What the looks at all ranks show together: the phase of each rank, and where the ranks meet.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/judgement.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

void sort_by_rank(Ranks& ranks) {
  std::sort(ranks.begin(), ranks.end(), [](const auto& one, const auto& other) {
    return std::tie(one.rank, one.task) < std::tie(other.rank, other.task);
  });
}

// Numbers that launchers gave are kept where they are unique: each task of a farm may have a rank 0.
void make_numbers_unique(Ranks& ranks, std::vector<std::string>& also) {
  sort_by_rank(ranks);
  const auto is_same = [](const RankState& one, const RankState& other) { return one.rank == other.rank; };
  if (std::adjacent_find(ranks.begin(), ranks.end(), is_same) == ranks.end()) return;
  also.emplace_back(
      "several processes have the same rank, as those of several worlds; here they are counted in order of Slurm's "
      "tasks");
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const RankState& one, const RankState& other) { return one.task < other.task; });
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].rank = i;
    ranks[i].world_size = 0;
  }
}

// The ranks of which no process is left, and those of nodes that did not answer.
void add_absent(const StepState& step, std::uint64_t tasks, Ranks& ranks) {
  std::uint64_t size = tasks;
  bool has_workers = false;
  std::set<std::uint64_t> seen;
  std::map<std::uint64_t, std::pair<std::string, std::uint64_t>> places;  // node and local rank of each task
  std::set<std::string> empty_nodes;
  for (const auto& node : step.nodes) empty_nodes.insert(node.node);
  for (const auto& rank : ranks) {
    seen.insert(rank.rank);
    has_workers = has_workers || rank.rank != rank.task || rank.world_size > tasks;
    empty_nodes.erase(rank.node);
    std::uint64_t local_rank = 0;
    for (const auto word : split(rank.node_tasks, ',')) {
      if (const auto task = parse_unsigned(word, kMaxRanks - 1)) places[*task] = {rank.node, local_rank++};
    }
  }
  for (const auto& rank : ranks) size = has_workers ? std::max(size, rank.world_size) : size;
  for (std::uint64_t number = 0; number < std::min<std::uint64_t>(size, kMaxRanks); ++number) {
    if (seen.contains(number)) continue;
    auto& absent = ranks.emplace_back();
    absent.rank = absent.task = number;
    const auto place = places.find(number);
    const bool has_place = place != places.end() && !has_workers;
    if (has_place || step.silent_nodes.empty()) absent.phase = Phase::kEnded;
    if (has_place) {
      std::tie(absent.node, absent.local_rank) = place->second;
    } else if (step.silent_nodes.size() == 1) {
      absent.node = step.silent_nodes.front();
    } else if (step.silent_nodes.empty() && empty_nodes.size() == 1) {
      absent.node = *empty_nodes.begin();
    }
  }
  sort_by_rank(ranks);
}

// What one look shows without the other ranks.
Phase own_phase(const RankState& rank) {
  if (rank.state == "T" || rank.state == "t") return Phase::kStopped;
  if (rank.state == "Z") return Phase::kZombie;
  const bool is_file_wait = rank.is_still && (rank.state == "D" || rank.waits.starts_with("file system"));
  if (is_file_wait || (rank.state == "D" && !rank.unread.empty())) return Phase::kDiskWait;
  if (!rank.unread.empty()) return Phase::kUnknown;
  if (rank.is_launcher) return Phase::kLauncher;
  return rank.framework.empty() ? Phase::kNoFramework : Phase::kWorking;
}

bool has(const std::vector<std::uint64_t>& ports, std::uint64_t port) {
  return std::find(ports.begin(), ports.end(), port) != ports.end();
}

MeetingPoint meeting_at(const Ranks& ranks, std::string name, std::uint64_t port) {
  MeetingPoint point{.name = std::move(name), .port = port, .node = {}, .connected = {}};
  const auto remote = cat({":", std::to_string(port)});
  const auto own = cat({std::to_string(port), ":"});
  bool has_guests = false;
  for (const auto& rank : ranks) {
    const bool listens = has(rank.listens, port);
    if ((listens || has(rank.task_listens, port)) && point.node.empty()) point.node = rank.node;
    const auto is_any = [&rank](const auto& matches) {
      return std::any_of(rank.links.begin(), rank.links.end(), matches);
    };
    const bool is_guest = !listens && is_any([&](const std::string& link) { return link.ends_with(remote); });
    has_guests = has_guests || is_guest;
    point.connected.push_back(is_guest || listens ||
                              is_any([&](const std::string& link) { return link.starts_with(own); }));
  }
  point.is_listened = !has_guests && !point.node.empty();
  if (point.node.empty()) point.node = ranks.front().node;
  return point;
}

// Nothing where no rank listens or is connected at such a port. A port that the environment names comes first, then one
// at which the first rank listens and most others are connected.
std::optional<MeetingPoint> find_meeting_point(const Ranks& ranks) {
  std::optional<MeetingPoint> best;
  const auto size_of = [](const MeetingPoint& point) {
    return static_cast<std::size_t>(std::count(point.connected.begin(), point.connected.end(), true));
  };
  const auto keep = [&](MeetingPoint point) {
    if (size_of(point) > (best ? size_of(*best) : 0)) best = std::move(point);
  };
  std::set<std::string> named;
  for (const auto& rank : ranks) named.insert(rank.meetings.begin(), rank.meetings.end());
  for (const auto& name : named) {
    keep(meeting_at(ranks, name, parse_unsigned(std::string_view(name).substr(name.rfind(' ') + 1)).value_or(0)));
  }
  // Ranks of MPI connect when they first have something to send, and ports of one number are on several nodes.
  if (best || ranks.empty() || (ranks.front().framework != "PyTorch" && ranks.front().framework != "JAX")) return best;
  for (const auto port : ranks.front().listens) {
    auto point = meeting_at(ranks, cat({"port ", std::to_string(port)}), port);
    const auto listeners =
        std::count_if(ranks.begin(), ranks.end(), [port](const RankState& rank) { return has(rank.listens, port); });
    if (listeners == 1 && 2 * size_of(point) > ranks.size() && !point.is_listened) keep(std::move(point));
  }
  return best;
}

// Ranks that have a connection with another rank, but for those at this port: both ends are seen.
std::vector<bool> linked_ranks(const Ranks& ranks, std::uint64_t port) {
  std::map<std::string, std::size_t, std::less<>> owners;  // of each end
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (const auto& link : ranks[i].links) owners.emplace(link, i);
  }
  const auto meeting = std::to_string(port);
  std::vector<bool> linked(ranks.size());
  for (const auto& [link, rank] : owners) {
    const auto ends = split(link, ':');
    const auto other = owners.find(cat({ends.back(), ":", ends.front()}));
    if (ends.front() != meeting && ends.back() != meeting && other != owners.end() && other->second != rank) {
      linked[rank] = true;
    }
  }
  return linked;
}

// A rank without a connection is before the rendezvous only where there is one, or where PyTorch cannot do without.
void place_at_meeting(Ranks& ranks, const std::optional<MeetingPoint>& meeting) {
  const auto linked = linked_ranks(ranks, meeting ? meeting->port : 0);
  const bool is_any_linked = std::find(linked.begin(), linked.end(), true) != linked.end();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    auto& rank = ranks[i];
    if (rank.phase != Phase::kWorking || linked[i]) continue;
    if (meeting) {
      rank.phase = meeting->connected[i] ? Phase::kConnected : Phase::kBefore;
    } else if (!is_any_linked && rank.framework == "PyTorch" && !rank.meetings.empty()) {
      rank.phase = Phase::kBefore;
    }
  }
}

}  // namespace

Judgement judge(const StepState& step, std::uint64_t tasks) {
  Judgement judgement;
  auto& ranks = judgement.ranks = step.ranks;
  make_numbers_unique(ranks, judgement.also);
  for (auto& rank : ranks) rank.phase = own_phase(rank);
  add_absent(step, tasks, ranks);
  judgement.nodes = step.nodes.size() + step.silent_nodes.size();
  const auto meeting = find_meeting_point(ranks);
  place_at_meeting(ranks, meeting);
  judgement.findings = find_out_of_step(ranks, meeting, step.silent_nodes);
  for (auto& sentence : notes_on(ranks)) judgement.also.push_back(std::move(sentence));
  for (const auto& node : step.nodes) {
    if (!node.ras.empty()) judgement.also.push_back(join(node.ras, "\n"));
  }
  return judgement;
}

}  // namespace bootstrap
