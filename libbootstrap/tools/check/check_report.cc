// What one rank of a check found on its side, and the lines in which it reports to rank 0 over TCP.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <vector>

#include "core/util/text.h"

namespace bootstrap {

std::string write_line(const CheckLine& line) {
  return cat({line.step_tag, " ", std::to_string(line.rank), " ", line.word, " ", line.body, "\n"});
}

std::optional<CheckLine> read_line(std::string_view received) {
  std::array<std::string_view, 3> words;
  for (auto& word : words) {
    const auto blank = received.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    word = received.substr(0, blank);
    received.remove_prefix(blank + 1);
  }
  const auto rank = parse_unsigned(words[1], kMaxRanks - 1);
  if (!rank) return std::nullopt;
  return CheckLine{std::string(words[0]), static_cast<Rank>(*rank), std::string(words[2]), std::string(received)};
}

std::optional<std::string> take_line(std::string& received) {
  const auto end = received.find('\n');
  if (end == std::string::npos) return std::nullopt;
  auto line = received.substr(0, end);
  received.erase(0, end + 1);
  return line;
}

bool is_same_release(const std::string& one, const std::string& other) {
  const auto numbers = [](const std::string& text) {
    const auto parts = split(text, '.');
    return std::vector(parts.begin(), parts.begin() + std::min<std::ptrdiff_t>(2, std::ssize(parts)));
  };
  return numbers(one) == numbers(other);
}

}  // namespace bootstrap
