// What `slurm-bootstrap status` prints: the first line, ranks that are alike as one row each, and JSON.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/judgement.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "core/util/text.h"

namespace bootstrap {
namespace {

std::vector<std::string> nodes_of(const RankGroup& group) {
  std::set<std::string> nodes;
  for (const auto* const rank : group) nodes.insert(rank->node);
  nodes.erase("");
  return {nodes.begin(), nodes.end()};
}

constexpr std::size_t kGpu = 6;
constexpr std::size_t kMaxCell = 26;
constexpr std::size_t kMaxRows = 40;
using Row = std::vector<std::string>;

std::string range_of(const RankGroup& group, std::uint64_t RankState::*member, std::string (*write)(std::uint64_t)) {
  const auto [least, most] = std::minmax_element(
      group.begin(), group.end(), [=](const auto* one, const auto* other) { return one->*member < other->*member; });
  const auto low = write((*least)->*member);
  const auto high = write((*most)->*member);
  return low == high ? low : cat({low.substr(0, low.find(' ')), "-", high});
}

std::string write_memory(std::uint64_t kib) {
  constexpr std::uint64_t kTen = std::uint64_t{10} << 20;
  return kib < kTen ? cat({std::to_string(kib >> 10), " MiB"}) : cat({std::to_string(kib >> 20), " GiB"});
}

Row row_of(const RankGroup& group) {
  const auto& first = *group.front();
  const bool is_alone = group.size() == 1;
  Row row{list_ranks(group), name_nodes(group), "-", std::string(phase_text(first.phase)), "-", "-", "-", "-"};
  if (first.pid == 0) return row;
  const auto with_gpu = std::count_if(group.begin(), group.end(), [](const auto* rank) { return !rank->gpus.empty(); });
  if (is_alone) row[2] = std::to_string(first.pid);
  row[4] = cpu_range(group);
  row[5] = range_of(group, &RankState::memory, write_memory);
  if (with_gpu > 0) row[kGpu] = is_alone ? first.gpus : counted(static_cast<std::uint64_t>(with_gpu), "GPU");
  if (first.is_still && !first.waits.empty()) row[7] = first.waits;
  if (first.cpu_wait > std::max<std::uint64_t>(first.cpu, 10)) row[7] = "run queue";
  const bool needs_chain = first.phase == Phase::kLauncher || first.phase == Phase::kNoFramework;
  if (needs_chain) row[7] += cat({" (", first.chain, ")"});
  return row;
}

std::string table_of(const std::vector<RankGroup>& groups) {
  std::vector<Row> rows{{"RANK", "HOST", "PID", "PHASE", "CPU", "MEMORY", "GPU", "WAITS IN"}};
  for (std::size_t i = 0; i < std::min(groups.size(), kMaxRows); ++i) rows.push_back(row_of(groups[i]));
  const bool has_gpus = std::any_of(rows.begin() + 1, rows.end(), [](const Row& row) { return row[kGpu] != "-"; });
  for (auto& row : rows) {
    if (!has_gpus) row[kGpu].clear();
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      if (row[i].size() > kMaxCell) row[i] = cat({row[i].substr(0, kMaxCell - 3), "..."});
    }
  }
  const auto more = groups.size() - std::min(groups.size(), kMaxRows);
  const auto rest = cat({"and ", std::to_string(more), " more groups; --json has all ranks\n"});
  return cat({align_columns(rows), more == 0 ? "" : rest});
}

std::string stacks_of(const Judgement& judgement, const std::vector<RankGroup>& groups) {
  std::string out;
  for (const auto& group : groups) {
    if (group.front()->stack.empty()) continue;
    out += cat({"\n", name_group(judgement.ranks, group), ":\n"});
    for (const auto& frame : group.front()->stack) out += cat({"    ", frame, "\n"});
  }
  return out;
}

// The answer of NCCL's RAS has lines of its own.
void append_note(std::string& out, std::string_view note) {
  if (note.find('\n') == std::string_view::npos) return append_wrapped(out, "Also: ", 6, note);
  for (const auto line : split(note, '\n')) {
    if (!line.empty()) out += cat({"  ", line, "\n"});
  }
}

std::string json_of_all(const auto& items, const auto& write) {
  std::vector<std::string> texts;
  texts.reserve(items.size());
  for (const auto& item : items) texts.push_back(write(item));
  return cat({"[", join(texts, ", "), "]"});
}

}  // namespace

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

std::vector<std::uint64_t> cpu_of(const Ranks& ranks) {
  constexpr std::uint64_t kOneCore = 100;
  std::vector<std::uint64_t> cpu;
  for (const auto& rank : ranks) cpu.push_back(std::max(rank.cpu, std::min(kOneCore, rank.cpu + rank.cpu_wait)));
  return cpu;
}

std::vector<RankGroup> group_ranks(const Ranks& ranks) {
  const auto apart = far_apart(cpu_of(ranks));
  std::map<std::tuple<Phase, bool, std::string, std::string, std::string, std::vector<std::string>>, RankGroup> alike;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& rank = ranks[i];
    // A rank that runs and waits in turn is somewhere else at each look.
    alike[{rank.phase, !apart.empty() && apart[i], rank.is_still ? rank.waits : "", rank.child, rank.unread,
           rank.stack}]
        .push_back(&rank);
  }
  std::vector<RankGroup> groups;
  groups.reserve(alike.size());
  for (auto& [look, group] : alike) groups.push_back(std::move(group));
  std::sort(groups.begin(), groups.end(), [](const RankGroup& one, const RankGroup& other) {
    return std::pair(one.size(), one.front()) < std::pair(other.size(), other.front());
  });
  return groups;
}

std::vector<std::uint64_t> numbers_of(const RankGroup& group) {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(group.size());
  for (const auto* const rank : group) numbers.push_back(rank->rank);
  return numbers;
}

std::string list_ranks(const RankGroup& group) { return write_ranges(numbers_of(group)); }

std::string name_nodes(const RankGroup& group) {
  const auto nodes = nodes_of(group);
  return nodes.size() == 1 ? nodes.front() : nodes.empty() ? "-" : counted(nodes.size(), "node");
}

std::string cpu_range(const RankGroup& group) {
  return range_of(group, &RankState::cpu, [](std::uint64_t value) { return cat({std::to_string(value), " %"}); });
}

std::string name_group(const Ranks& ranks, const RankGroup& group) {
  const auto& first = *group.front();
  const auto nodes = nodes_of(group);
  if (group.size() == 1) {
    auto name = cat({"rank ", std::to_string(first.rank)});
    if (nodes.empty()) return name;
    const auto pid = first.pid == 0 ? "" : cat({", pid ", std::to_string(first.pid)});
    return cat({name, " (", first.node, ", local rank ", std::to_string(first.local_rank), pid, ")"});
  }
  if (group.size() == ranks.size()) return cat({"all ", std::to_string(group.size()), " ranks"});
  auto text = cat({"ranks ", list_ranks(group)});
  if (nodes.empty()) return text;
  constexpr std::size_t kMaxNames = 3;
  const auto on_these = std::count_if(ranks.begin(), ranks.end(), [&nodes](const RankState& rank) {
    return std::binary_search(nodes.begin(), nodes.end(), rank.node);
  });
  const bool is_whole = static_cast<std::size_t>(on_these) == group.size() && group.size() > nodes.size();
  const auto names = nodes.size() <= kMaxNames ? join(nodes, ", ") : counted(nodes.size(), "node");
  return cat({text, " (", is_whole ? "all of " : "", names, ")"});
}

void SeenSince::note(Judgement& judgement, std::chrono::steady_clock::time_point now) {
  std::map<std::string, std::chrono::steady_clock::time_point> seen;
  for (auto& finding : judgement.findings) {
    if (finding.kind == "alike" || finding.kind == "none") continue;
    const auto key = cat({finding.kind, " ", join(finding.ranks, ",")});
    const auto before = since_.find(key);
    seen[key] = before == since_.end() ? now : before->second;
    if (before == since_.end()) continue;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - before->second).count();
    finding.sentence += cat({", for at least ", std::to_string(seconds), " s"});
  }
  since_ = std::move(seen);
}

std::string status_text(const Judgement& judgement, const std::string& step, bool has_stacks) {
  const auto groups = group_ranks(judgement.ranks);
  auto out = cat({judgement.findings.front().sentence, "\n\n", table_of(groups), "\n"});
  for (std::size_t i = 1; i < judgement.findings.size(); ++i) append_note(out, judgement.findings[i].sentence);
  for (const auto& note : judgement.also) append_note(out, note);
  out += cat(
      {"StepId=", step, ": ", counted(judgement.ranks.size(), "rank"), " on ", counted(judgement.nodes, "node"), "."});
  const bool has_python = std::any_of(judgement.ranks.begin(), judgement.ranks.end(),
                                      [](const RankState& rank) { return rank.program.starts_with("python"); });
  if (!has_stacks && has_python) out += " With --stacks: the Python code that each rank is in.";
  return cat({out, "\n", has_stacks ? stacks_of(judgement, groups) : ""});
}

std::string status_json(const Judgement& judgement, const std::string& step) {
  const auto finding = [](const Finding& found) {
    return cat({"{", json_member("kind", json_string(found.kind)), ", ",
                json_member("ranks", cat({"[", join(found.ranks, ", "), "]"})), ", ",
                json_member("sentence", json_string(found.sentence)), "}"});
  };
  return cat({"{", json_member("step", json_string(step)), ", ", json_number("nodes", judgement.nodes), ", ",
              json_member("first_line", json_string(judgement.findings.front().sentence)), ", ",
              json_member("findings", json_of_all(judgement.findings, finding)), ", ",
              json_member("also", json_of_all(judgement.also, json_string)), ", ",
              json_member("ranks", json_of_all(judgement.ranks, rank_json)), "}\n"});
}

}  // namespace bootstrap
