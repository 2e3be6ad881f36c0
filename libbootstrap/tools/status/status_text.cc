// What `slurm-bootstrap status` prints.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/status_text.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/util/text.h"
#include "tools/status/rank_groups.h"

namespace bootstrap {
namespace {

constexpr std::size_t kColumns = 8;
constexpr std::size_t kMaxCell = 26;
constexpr std::size_t kMaxRows = 40;
using Row = std::array<std::string, kColumns>;

std::string range_of(const std::vector<SeenRank>& ranks, const RankGroup& group, std::uint64_t RankSight::*member,
                     std::string (*write)(std::uint64_t)) {
  auto least = ranks[group.front()].sight.*member;
  auto most = least;
  for (const auto place : group) {
    least = std::min(least, ranks[place].sight.*member);
    most = std::max(most, ranks[place].sight.*member);
  }
  const auto low = write(least);
  const auto high = write(most);
  return low == high ? low : cat({low.substr(0, low.find(' ')), "-", high});
}

std::string write_percent(std::uint64_t value) { return cat({std::to_string(value), " %"}); }

std::string write_memory(std::uint64_t kib) {
  constexpr std::uint64_t kTen = std::uint64_t{10} << 20;
  return kib < kTen ? cat({std::to_string(kib >> 10), " MiB"}) : cat({std::to_string(kib >> 20), " GiB"});
}

Row row_of(const std::vector<SeenRank>& ranks, const RankGroup& group) {
  const auto& first = ranks[group.front()];
  const auto& sight = first.sight;
  Row row{list_ranks(ranks, group),
          name_nodes(ranks, group),
          "-",
          std::string(phase_text(first.phase)),
          "-",
          "-",
          "-",
          "-"};
  if (sight.pid == 0) return row;
  if (group.size() == 1) row[2] = std::to_string(sight.pid);
  row[4] = range_of(ranks, group, &RankSight::cpu, write_percent);
  row[5] = range_of(ranks, group, &RankSight::memory, write_memory);
  if (group.size() == 1 && !sight.gpus.empty()) row[6] = sight.gpus;
  if (group.size() > 1) {
    const auto with_gpu =
        std::count_if(group.begin(), group.end(), [&](std::size_t place) { return !ranks[place].sight.gpus.empty(); });
    if (with_gpu > 0) row[6] = counted(static_cast<std::uint64_t>(with_gpu), "GPU");
  }
  if (sight.is_still && !sight.waits.empty()) row[7] = printable(sight.waits);
  if (first.phase == Phase::kLauncher || first.phase == Phase::kNoFramework) {
    row[7] = cat({row[7], " (", printable(sight.chain), ")"});
  }
  return row;
}

std::string table_of(const Judgement& judgement, const std::vector<RankGroup>& groups) {
  std::vector<Row> rows{{"RANK", "HOST", "PID", "PHASE", "CPU", "MEMORY", "GPU", "WAITS IN"}};
  for (std::size_t i = 0; i < groups.size() && i < kMaxRows; ++i) rows.push_back(row_of(judgement.ranks, groups[i]));
  const bool has_gpus = std::any_of(rows.begin() + 1, rows.end(), [](const Row& row) { return row[6] != "-"; });
  std::array<std::size_t, kColumns> widths{};
  for (auto& row : rows) {
    for (std::size_t i = 0; i + 1 < kColumns; ++i) {
      if (row[i].size() > kMaxCell) row[i] = cat({row[i].substr(0, kMaxCell - 3), "..."});
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    std::size_t column = 0;
    for (std::size_t i = 0; i < kColumns; ++i) {
      if (i == 6 && !has_gpus) continue;
      pad_to(line, column);
      line += row[i];
      column += widths[i] + 2;
    }
    out += cat({line, "\n"});
  }
  if (groups.size() > kMaxRows) {
    out += cat({"and ", std::to_string(groups.size() - kMaxRows), " more groups; --json has all ranks\n"});
  }
  return out;
}

std::string stacks_of(const Judgement& judgement, const std::vector<RankGroup>& groups) {
  std::string out;
  for (const auto& group : groups) {
    const auto& sight = judgement.ranks[group.front()].sight;
    if (sight.stack.empty()) continue;
    out += cat({"\n", name_group(judgement.ranks, group), ":\n"});
    for (const auto& frame : sight.stack) out += cat({"    ", printable(frame), "\n"});
  }
  return out;
}

// The answer of NCCL's RAS has lines of its own.
void append_note(std::string& out, std::string_view note) {
  if (note.find('\n') == std::string_view::npos) return append_wrapped(out, "Also: ", 6, printable(note));
  for (const auto line : split(note, '\n')) {
    if (!line.empty()) out += cat({"  ", printable(line), "\n"});
  }
}

bool has_python(const Judgement& judgement) {
  return std::any_of(judgement.ranks.begin(), judgement.ranks.end(),
                     [](const SeenRank& rank) { return rank.sight.program.starts_with("python"); });
}

std::string numbers_json(const std::vector<std::uint64_t>& numbers) {
  std::string out = "[";
  for (const auto number : numbers) out += cat({out.size() > 1 ? ", " : "", std::to_string(number)});
  return out + "]";
}

template <class Item, class Write>
std::string list_json(const std::vector<Item>& items, Write write) {
  std::string out = "[";
  for (const auto& item : items) out += cat({out.size() > 1 ? ", " : "", write(item)});
  return out + "]";
}

}  // namespace

void SeenSince::note(Judgement& judgement, std::chrono::steady_clock::time_point now) {
  std::map<std::string, std::chrono::steady_clock::time_point> seen;
  for (auto& finding : judgement.findings) {
    if (finding.kind == "alike" || finding.kind == "none") continue;
    const auto key = cat({finding.kind, " ", numbers_json(finding.ranks)});
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
  std::string out = cat({judgement.findings.front().sentence, "\n\n", table_of(judgement, groups), "\n"});
  for (std::size_t i = 1; i < judgement.findings.size(); ++i) append_note(out, judgement.findings[i].sentence);
  for (const auto& note : judgement.also) append_note(out, note);
  const auto size = cat(
      {"StepId=", step, ": ", counted(judgement.ranks.size(), "rank"), " on ", counted(judgement.nodes, "node"), "."});
  out += size;
  if (!has_stacks && has_python(judgement)) out += cat({" With --stacks: the Python code that each rank is in."});
  out += "\n";
  return has_stacks ? out + stacks_of(judgement, groups) : out;
}

std::string status_json(const Judgement& judgement, const std::string& step) {
  const auto finding = [](const Finding& found) {
    return cat({"{", json_member("kind", json_string(found.kind)), ", ",
                json_member("ranks", numbers_json(found.ranks)), ", ",
                json_member("sentence", json_string(found.sentence)), "}"});
  };
  const auto rank = [](const SeenRank& seen) {
    return cat({"{", json_member("phase", json_string(phase_name(seen.phase))), ", ", rank_members(seen.sight), "}"});
  };
  return cat({"{", json_member("step", json_string(step)), ", ", json_number("nodes", judgement.nodes), ", ",
              json_member("first_line", json_string(judgement.findings.front().sentence)), ", ",
              json_member("findings", list_json(judgement.findings, finding)), ", ",
              json_member("also", list_json(judgement.also, [](const std::string& note) { return json_string(note); })),
              ", ", json_member("ranks", list_json(judgement.ranks, rank)), "}\n"});
}

}  // namespace bootstrap
