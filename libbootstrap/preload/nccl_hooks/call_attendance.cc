// What a process tells the other ranks of an NCCL call in which it waits, or in which it has failed.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/call_attendance.h"

#include <climits>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kNone = "-";

std::string write_list(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (const auto number : numbers) text += cat({text.empty() ? "" : ",", std::to_string(number)});
  return text.empty() ? std::string(kNone) : text;
}

std::optional<std::vector<std::uint32_t>> read_list(std::string_view text) {
  std::vector<std::uint32_t> numbers;
  if (text == kNone) return numbers;
  for (const auto word : split(text, ',')) {
    const auto number = parse_unsigned(word, UINT32_MAX);
    if (!number) return std::nullopt;
    numbers.push_back(static_cast<std::uint32_t>(*number));
  }
  return numbers;
}

// The word before the next space, which is taken away with it.
std::string_view take_word(std::string_view& text) {
  const auto end = text.find(' ');
  const auto word = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return word;
}

}  // namespace

std::string write_attendance(const CallAttendance& attendance) {
  return cat({std::to_string(attendance.version), " ", write_list(attendance.ranks), " ", write_list(attendance.ended),
              " ", attendance.failure});
}

std::optional<CallAttendance> read_attendance(std::string_view text) {
  const auto version = parse_unsigned(take_word(text), INT_MAX);
  auto ranks = read_list(take_word(text));
  auto ended = read_list(take_word(text));
  if (!version || !ranks || !ended || ranks->empty()) return std::nullopt;
  return CallAttendance{.version = static_cast<int>(*version),
                        .ranks = std::move(*ranks),
                        .ended = std::move(*ended),
                        .failure = std::string(text)};
}

}  // namespace bootstrap
