// Text in columns, for tables of 80 columns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bootstrap {

inline constexpr std::size_t kTableWidth = 80;

void pad_to(std::string& line, std::size_t column);

// Adds `line` with `text` at `column` to `out`, broken between words so that it stays within the width.
void append_wrapped(std::string& out, std::string line, std::size_t column, std::string_view text);

}  // namespace bootstrap
