// Text in columns, for tables of 80 columns.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/text_columns.h"

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
