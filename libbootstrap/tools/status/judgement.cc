// What the looks at all ranks show together: the phase of each rank, and the ranks that are out of step.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/judgement.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/util/text.h"
#include "tools/status/findings.h"
#include "tools/status/meeting_point.h"

namespace bootstrap {
namespace {

// Numbers that launchers gave are kept where they are unique: each task of a farm may have a rank 0.
void settle_numbers(std::vector<RankSight>& sights, std::vector<std::string>& also) {
  std::set<std::uint64_t> numbers;
  for (const auto& sight : sights) numbers.insert(sight.rank);
  std::sort(sights.begin(), sights.end(), [](const RankSight& one, const RankSight& other) {
    return std::pair(one.task, one.rank) < std::pair(other.task, other.rank);
  });
  if (numbers.size() < sights.size()) {
    also.emplace_back(
        "several processes have the same rank, as those of several worlds; here they are counted in order of Slurm's "
        "tasks");
    for (std::size_t i = 0; i < sights.size(); ++i) {
      sights[i].rank = i;
      sights[i].world_size = 0;
    }
  }
  std::sort(sights.begin(), sights.end(),
            [](const RankSight& one, const RankSight& other) { return one.rank < other.rank; });
}

// The node and the local rank of each task, by the nodes that answered.
std::map<std::uint64_t, std::pair<std::string, std::uint64_t>> places_of(const StepSight& sight) {
  std::map<std::uint64_t, std::pair<std::string, std::uint64_t>> places;
  for (const auto& node : sight.nodes) {
    for (std::size_t i = 0; i < node.tasks.size(); ++i) places[node.tasks[i]] = {node.node, i};
  }
  return places;
}

// Where a rank of which no process is left was: the only node that had none to show.
std::string only_empty_node(const StepSight& sight) {
  std::vector<std::string> empty;
  for (const auto& node : sight.nodes) {
    if (node.tasks.empty()) empty.push_back(node.node);
  }
  return empty.size() == 1 ? empty.front() : "";
}

void add_absent(const StepSight& sight, std::uint64_t tasks, std::vector<SeenRank>& ranks) {
  std::uint64_t size = tasks;
  bool has_workers = false;
  std::set<std::uint64_t> seen;
  for (const auto& rank : ranks) {
    seen.insert(rank.sight.rank);
    has_workers = has_workers || rank.sight.rank != rank.sight.task || rank.sight.world_size > tasks;
  }
  if (has_workers) {
    for (const auto& rank : ranks) size = std::max(size, rank.sight.world_size);
  }
  const auto places = places_of(sight);
  const auto empty_node = only_empty_node(sight);
  for (std::uint64_t number = 0; number < std::min<std::uint64_t>(size, kMaxRanks); ++number) {
    if (seen.contains(number)) continue;
    SeenRank absent;
    absent.sight.rank = absent.sight.task = number;
    const auto place = places.find(number);
    if (place != places.end() && !has_workers) {
      std::tie(absent.sight.node, absent.sight.local_rank) = place->second;
      absent.phase = Phase::kEnded;
    } else if (sight.silent_nodes.empty()) {
      absent.sight.node = empty_node;
      absent.phase = Phase::kEnded;
    } else if (sight.silent_nodes.size() == 1) {
      absent.sight.node = sight.silent_nodes.front();
    }
    ranks.push_back(std::move(absent));
  }
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const SeenRank& one, const SeenRank& other) { return one.sight.rank < other.sight.rank; });
}

bool is_file_wait(const RankSight& sight) {
  return sight.is_still && (sight.state == "D" || sight.waits.starts_with("file system"));
}

// What one look shows without the other ranks.
Phase own_phase(const RankSight& sight) {
  if (sight.state == "T" || sight.state == "t") return Phase::kStopped;
  if (sight.state == "Z") return Phase::kZombie;
  if (is_file_wait(sight) || (sight.state == "D" && !sight.unread.empty())) return Phase::kDiskWait;
  if (!sight.unread.empty()) return Phase::kUnknown;
  if (sight.is_launcher) return Phase::kLauncher;
  return sight.framework.empty() ? Phase::kNoFramework : Phase::kWorking;
}

// A rank without a connection is before the rendezvous only where there is one, or where PyTorch cannot do without.
void place_at_meeting(std::vector<SeenRank>& ranks, const std::optional<MeetingPoint>& meeting) {
  const auto linked = linked_ranks(ranks, meeting ? meeting->port : 0);
  const bool is_any_linked = std::find(linked.begin(), linked.end(), true) != linked.end();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].phase != Phase::kWorking || linked[i]) continue;
    const auto& sight = ranks[i].sight;
    if (meeting) ranks[i].phase = meeting->connected[i] ? Phase::kConnected : Phase::kBefore;
    if (!meeting && !is_any_linked && sight.framework == "PyTorch" && !sight.meetings.empty()) {
      ranks[i].phase = Phase::kBefore;
    }
  }
}

}  // namespace

std::string_view phase_name(Phase phase) {
  constexpr std::string_view kNames[] = {"ended",        "launcher_only",
                                         "no_framework", "before_rendezvous",
                                         "connected",    "communicating_or_computing",
                                         "disk_wait",    "stopped",
                                         "zombie",       "unknown"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string_view phase_text(Phase phase) {
  constexpr std::string_view kTexts[] = {"ended",
                                         "shell or launcher",
                                         "no framework yet",
                                         "before rendezvous",
                                         "connected",
                                         "running",
                                         "disk wait",
                                         "stopped",
                                         "zombie",
                                         "unknown"};
  return kTexts[static_cast<std::size_t>(phase)];
}

std::vector<bool> far_apart(const std::vector<std::uint64_t>& cpu) {
  constexpr std::uint64_t kIdlePercent = 2;  // percent of a core
  constexpr std::uint64_t kBusy = 15;        // on a node with more work than cores
  constexpr std::uint64_t kMostAreBusy = 8;  // the same where few ranks are idle
  constexpr std::uint64_t kGap = 50;
  auto sorted = cpu;
  std::sort(sorted.begin(), sorted.end());
  const auto idle =
      static_cast<std::size_t>(std::upper_bound(sorted.begin(), sorted.end(), kIdlePercent) - sorted.begin());
  const auto least_busy = 2 * idle < sorted.size() ? kMostAreBusy : kBusy;
  auto split_at = idle > 0 && idle < sorted.size() && sorted[idle] >= least_busy ? idle : 0;
  for (std::size_t i = 1; i < sorted.size() && split_at == 0; ++i) {
    if (sorted[i] - sorted[i - 1] >= kGap) split_at = i;
  }
  if (split_at == 0) return {};
  const auto high = sorted[split_at];
  const auto highs = sorted.size() - split_at;
  // Of two groups of one size, the one without the first rank.
  const bool marks_high = highs != split_at ? highs < split_at : cpu.front() < high;
  std::vector<bool> marked;
  marked.reserve(cpu.size());
  for (const auto value : cpu) marked.push_back((value >= high) == marks_high);
  return marked;
}

Judgement judge(const StepSight& sight, std::uint64_t tasks) {
  Judgement judgement;
  auto sights = sight.ranks;
  settle_numbers(sights, judgement.also);
  for (auto& rank : sights) {
    const auto phase = own_phase(rank);
    judgement.ranks.push_back({std::move(rank), phase});
  }
  add_absent(sight, tasks, judgement.ranks);
  judgement.nodes = sight.nodes.size() + sight.silent_nodes.size();
  const auto meeting = find_meeting_point(judgement.ranks);
  place_at_meeting(judgement.ranks, meeting);
  judgement.findings = find_out_of_step(judgement.ranks, meeting, sight.silent_nodes);
  for (auto& sentence : notes_on(judgement.ranks)) judgement.also.push_back(std::move(sentence));
  for (const auto& node : sight.nodes) {
    if (!node.ras.empty()) judgement.also.push_back(node.ras);
  }
  return judgement;
}

}  // namespace bootstrap
