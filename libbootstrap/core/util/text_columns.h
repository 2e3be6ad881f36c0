// Text in lists and in columns, for tables of 80 columns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace bootstrap {

// The parts of a list of texts or numbers, with `separator` between them.
template <class Parts>
std::string join(const Parts& parts, std::string_view separator) {
  std::string text;
  for (const auto& part : parts) {
    if (&part != &*std::begin(parts)) text += separator;
    if constexpr (std::is_integral_v<std::decay_t<decltype(part)>>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  }
  return text;
}

inline constexpr std::size_t kTableWidth = 80;

void pad_to(std::string& line, std::size_t column);

// Lines with the cells of each column below each other, two blanks apart. The last cell of a row that holds text does
// not widen its column; a column without text is left out.
std::string align_columns(const std::vector<std::vector<std::string>>& rows);

// Adds `line` with `text` at `column` to `out`, broken between words so that it stays within the width.
void append_wrapped(std::string& out, std::string line, std::size_t column, std::string_view text);

}  // namespace bootstrap
