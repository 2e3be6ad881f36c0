// The table of a check: its rows, as text and as JSON.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_table.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/util/text.h"

namespace bootstrap {

std::string describe_variants(const std::vector<Variant>& variants, std::string_view noun) {
  std::string text;
  const auto shown = std::min<std::size_t>(variants.size(), 3);
  for (std::size_t i = 1; i < shown; ++i) {
    text += cat({variants[i].value, " on ", counted(variants[i].ranks.size(), noun), ", "});
  }
  if (shown < variants.size()) text += cat({std::to_string(variants.size() - shown), " more, "});
  return cat({text, variants.front().value, " on the ", variants.front().ranks.size() == 1 ? "other" : "others"});
}

std::vector<Rank> on_same_nodes(const CheckFindings& step, const std::vector<Rank>& ranks) {
  std::set<std::uint32_t> nodes;
  for (const auto rank : ranks) nodes.insert(step.layout.place(rank).node);
  return step.where([&](auto& report) { return nodes.contains(step.layout.place(report.rank).node); });
}

std::vector<Rank> odd_ranks(const std::vector<Variant>& variants) {
  std::vector<Rank> ranks;
  for (std::size_t i = 1; i < variants.size(); ++i) {
    ranks.insert(ranks.end(), variants[i].ranks.begin(), variants[i].ranks.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

bool has(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

void append_row(CheckTable& table, std::string_view name, CheckRow row) {
  row.name = name;
  if (!row.text.empty()) table.rows.push_back(std::move(row));
}

std::vector<Rank> missing_ranks(const CheckFindings& findings) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < findings.reports.size(); ++rank) {
    if (!findings.reports[rank] && !findings.other_versions.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<Rank> CheckFindings::where(const std::function<bool(const CheckReport&)>& holds) const {
  std::vector<Rank> ranks;
  for (const auto& report : reports) {
    if (report && holds(*report)) ranks.push_back(report->rank);
  }
  return ranks;
}

std::vector<Variant> CheckFindings::variants(const std::function<std::string(const CheckReport&)>& text_of) const {
  std::vector<Variant> found;
  for (const auto& report : reports) {
    auto value = report ? text_of(*report) : std::string();
    if (value.empty()) continue;
    auto same = std::find_if(found.begin(), found.end(), [&](const Variant& one) { return one.value == value; });
    if (same == found.end()) same = found.insert(found.end(), {std::move(value), {}});
    same->ranks.push_back(report->rank);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Variant& one, const Variant& other) { return one.ranks.size() > other.ranks.size(); });
  return found;
}

std::pair<std::uint64_t, std::uint64_t> CheckFindings::range(
    const std::function<std::uint64_t(const CheckReport&)>& number_of) const {
  std::pair<std::uint64_t, std::uint64_t> found{UINT64_MAX, 0};
  for (const auto& report : reports) {
    if (report) found = {std::min(found.first, number_of(*report)), std::max(found.second, number_of(*report))};
  }
  return found;
}

CheckTable judge_step(const CheckFindings& step) {
  const auto& first = step.first();
  auto title = cat({step_name(step.id), ": ", counted(step.layout.size(), "rank"), " on ",
                    counted(step.layout.node_count(), "node")});
  if (!first.address.empty()) title += cat({", rendezvous at ", first.address, ":", std::to_string(first.port)});
  CheckTable table{std::move(title), step.id, first.host, step.layout};
  append_row(table, "versions", version_row(step));
  append_row(table, "plan", plan_row(step));
  append_row(table, "ranks", ranks_row(step));
  append_row(table, "network", network_row(step));
  append_row(table, "port", port_row(step));
  append_row(table, "clocks", clock_row(step));
  append_row(table, "exchange", exchange_row(step));
  append_row(table, "frameworks", framework_row(step));
  append_row(table, "NCCL", nccl_row(step));
  append_row(table, "CUDA", driver_row(step));
  append_row(table, "GPUs", gpu_row(step));
  append_row(table, "GPU peers", peer_row(step));
  append_row(table, "CPUs", cpu_row(step));
  append_row(table, "GPU places", near_row(step));
  append_row(table, "/dev/shm", shm_row(step));
  append_row(table, "locked memory", locked_memory_row(step));
  append_row(table, "system", system_row(step));
  return table;
}

namespace {

constexpr std::size_t kNameWidth = 15;
constexpr std::size_t kResultWidth = 11;
constexpr std::size_t kTextColumn = kNameWidth + kResultWidth;

std::string_view word_of(CheckResult result) {
  constexpr std::array<std::string_view, 5> kWords{"ok", "not there", "not tried", "warning", "FAILED"};
  return kWords[static_cast<std::size_t>(result)];
}

// Bold red and yellow.
std::string_view colour_of(CheckResult result) {
  if (result == CheckResult::kFailed) return "\x1b[1;31m";
  return result == CheckResult::kWarning ? "\x1b[33m" : "";
}

void append_row(std::string& out, const Layout& layout, const CheckRow& row, bool has_colours) {
  const auto begin = out.size();
  std::string line(row.name);
  pad_to(line, kNameWidth);
  line += word_of(row.result);
  append_wrapped(out, std::move(line), kTextColumn, row.text);
  if (has_colours && !colour_of(row.result).empty()) {
    const auto word = word_of(row.result);
    out.replace(begin + kNameWidth, word.size(), cat({colour_of(row.result), word, "\x1b[0m"}));
  }
  if (!row.ranks.empty()) append_wrapped(out, "", kTextColumn, name_ranks(layout, row.ranks));
  if (!row.hint.empty()) append_wrapped(out, std::string(kTextColumn, ' ') + "-> ", kTextColumn + 3, row.hint);
}

// "2 FAILED: port, GPUs; 1 warning: clocks."
std::string summary(const CheckTable& table) {
  std::vector<std::string> parts;
  for (const auto result : {CheckResult::kFailed, CheckResult::kWarning}) {
    std::vector<std::string_view> names;
    for (const auto& row : table.rows) {
      if (row.result == result) names.push_back(row.name);
    }
    const auto* const plural = result == CheckResult::kWarning && names.size() > 1 ? "s" : "";
    if (names.empty()) continue;
    parts.push_back(cat({std::to_string(names.size()), " ", word_of(result), plural, ": ", join(names, ", ")}));
  }
  return parts.empty() ? "All checks passed." : cat({join(parts, "; "), "."});
}

std::string json_row(const CheckRow& row) {
  return cat({"{", json_member("check", json_string(row.name)), ", ",
              json_member("result", json_string(word_of(row.result))), ", ", json_member("text", json_string(row.text)),
              ", ", json_member("ranks", cat({"[", join(row.ranks, ", "), "]"})), ", ",
              json_member("hint", json_string(row.hint)), "}"});
}

}  // namespace

CheckResult CheckTable::worst() const {
  auto worst = CheckResult::kOk;
  for (const auto& row : rows) {
    if (row.result >= CheckResult::kWarning) worst = std::max(worst, row.result);
  }
  return worst;
}

std::string table_text(const CheckTable& table, bool has_colours) {
  std::string out;
  append_wrapped(out, "", 0, cat({"bootstrap: ", table.title}));
  out += "\n";
  append_wrapped(out, "CHECK          RESULT", kTextColumn, "DETAILS");
  for (const auto& row : table.rows) append_row(out, table.layout, row, has_colours);
  out += "\n";
  append_wrapped(out, "", 0, summary(table));
  return out;
}

std::string table_json(const CheckTable& table) {
  std::vector<std::string> rows;
  for (const auto& row : table.rows) rows.push_back(json_row(row));
  const std::vector<std::string> members{
      json_member("title", json_string(table.title)),
      json_member("step", json_string(table.id.job == 0 ? "" : to_string(table.id))),
      json_member("host", json_string(table.host)),
      json_number("restart", table.id.restart),
      json_number("world_size", table.layout.size()),
      json_number("node_count", table.layout.node_count()),
      json_member("result", json_string(word_of(table.worst()))),
      json_member("checks", json_list(rows)),
  };
  return cat({"{\n  ", join(members, ",\n  "), "\n}\n"});
}

}  // namespace bootstrap
