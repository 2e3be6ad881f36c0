// Text in columns, for tables of 80 columns.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/text_columns.h"

#include <algorithm>

#include "core/util/text.h"

namespace bootstrap {
namespace {

void end_line(std::string& out, std::string& line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
  line.clear();
}

}  // namespace

void pad_to(std::string& line, std::size_t column) {
  if (line.size() < column) line.append(column - line.size(), ' ');
}

std::string align_columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.empty() ? 0 : rows.front().size());
  const auto last_of = [](const std::vector<std::string>& row) {
    auto last = row.size();
    while (last > 0 && row[last - 1].empty()) --last;
    return last;
  };
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < last_of(row); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    std::size_t column = 0;
    for (std::size_t i = 0; i < last_of(row); ++i) {
      if (!row[i].empty()) pad_to(line, column);
      line += row[i];
      column += widths[i] == 0 ? 0 : widths[i] + 2;
    }
    text += line + "\n";
  }
  return text;
}

void append_wrapped(std::string& out, std::string line, std::size_t column, std::string_view text) {
  pad_to(line, column);
  for (const auto word : split(text, ' ')) {
    if (line.size() + word.size() > kTableWidth && line.size() > column) {
      end_line(out, line);
      pad_to(line, column);
    }
    line += cat({word, " "});
  }
  end_line(out, line);
}

}  // namespace bootstrap
