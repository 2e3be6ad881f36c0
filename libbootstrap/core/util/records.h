// Structs as text, for other processes of this project.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/util/text.h"

namespace bootstrap {

inline constexpr std::size_t kMaxField = 512;      // bytes of a text, and of the items of a list together
inline constexpr std::size_t kMaxFieldItems = 64;  // of a list

// Texts are sent as printable ASCII: other bytes, and blanks in items of lists, become '?'. Long texts are cut.
inline std::string write_field(const std::string& value) {
  auto text = value.substr(0, kMaxField);
  std::replace_if(
      text.begin(), text.end(), [](char character) { return !is_printable(character); }, '?');
  return text;
}

// Lists the first entries and cuts long ones.
inline std::string write_field(const std::vector<std::string>& items) {
  std::string text;
  std::size_t count = 0;
  for (const auto& item : items) {
    auto word = write_field(item);
    std::replace(word.begin(), word.end(), ' ', '?');
    if (word.empty() || text.size() + word.size() >= kMaxField || ++count > kMaxFieldItems) break;
    text += cat({text.empty() ? "" : " ", word});
  }
  return text;
}

// Returns false if write_field() cannot have written the text. Any process may have sent it.
inline bool read_field(std::string_view text, std::string& value) {
  value = text;
  return text.size() <= kMaxField && std::all_of(text.begin(), text.end(), is_printable);
}

inline bool read_field(std::string_view text, std::vector<std::string>& items) {
  std::string checked;
  if (!read_field(text, checked)) return false;
  const auto words = text.empty() ? std::vector<std::string_view>() : split(text, ' ');
  items.assign(words.begin(), words.end());
  return items.size() <= kMaxFieldItems && std::find(words.begin(), words.end(), "") == words.end();
}

// For numbers that are not negative, bool, and enums whose last value is kLast.
template <class Value>
std::string write_field(Value value) {
  static_assert(!std::is_floating_point_v<Value>);
  return std::to_string(static_cast<std::uint64_t>(value));
}

template <class Value>
bool read_field(std::string_view text, Value& value) {
  std::uint64_t most = 0;
  if constexpr (std::is_enum_v<Value>) {
    most = static_cast<std::uint64_t>(Value::kLast);
  } else {
    most = static_cast<std::uint64_t>(std::numeric_limits<Value>::max());
  }
  const auto number = parse_unsigned(text, most);
  value = static_cast<Value>(number.value_or(0));
  return number.has_value();
}

// A record is a struct with a function auto fields_of(Record& record) beside it, which returns std::tie() of its
// members.
template <class Record>
std::string write_record(Record record) {
  std::string text;
  std::apply([&](const auto&... member) { ((text += write_field(member) + '\t'), ...); }, fields_of(record));
  return text;
}

// Returns nullopt if the text is no record of this type.
template <class Record>
std::optional<Record> read_record(std::string_view text) {
  Record record;
  const auto words = split(text, '\t');
  std::size_t at = 0;
  const auto read = [&](auto&... member) {
    return words.size() == sizeof...(member) + 1 && words.back().empty() && (read_field(words[at++], member) && ...);
  };
  if (!std::apply(read, fields_of(record))) return std::nullopt;
  return record;
}

}  // namespace bootstrap
