// The table of a check as text and as JSON.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_table.h"

#include <algorithm>
#include <array>

#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
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
      json_number("restart", table.id.restart),
      json_number("world_size", table.layout.size()),
      json_number("node_count", table.layout.node_count()),
      json_member("result", json_string(word_of(table.worst()))),
      json_member("checks", json_list(rows)),
  };
  return cat({"{\n  ", join(members, ",\n  "), "\n}\n"});
}

}  // namespace bootstrap
