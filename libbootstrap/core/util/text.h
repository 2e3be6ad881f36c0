// Small pure functions on text: joining, splitting, numbers, tables of 80 columns, lists, JSON.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace bootstrap {

extern const std::string_view kVersion;  // such as "1.2.3", from CMakeLists.txt

std::string cat(std::initializer_list<std::string_view> parts);

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

// "a,,b" split at ',' gives {"a", "", "b"}; an empty text gives {""}.
std::vector<std::string_view> split(std::string_view text, char separator);

// Digits only: no sign, no space, no prefix. Returns nullopt for other texts, and if the value is above `max`.
std::optional<std::uint64_t> parse_digits(std::string_view text, std::uint64_t max, int base);

template <class Number = std::uint64_t>
std::optional<Number> parse_unsigned(std::string_view text, std::uint64_t max = std::numeric_limits<Number>::max()) {
  const auto value = parse_digits(text, max, 10);
  return value ? std::optional(static_cast<Number>(*value)) : std::nullopt;
}

template <class Number = std::uint64_t>
std::optional<Number> parse_hex(std::string_view text, std::uint64_t max = std::numeric_limits<Number>::max()) {
  const auto value = parse_digits(text, max, 16);
  return value ? std::optional(static_cast<Number>(*value)) : std::nullopt;
}

// Hexadecimal digits in lower case, at least `width` of them.
std::string to_hex(std::uint64_t value, std::size_t width = 1);

// Returns `text` with `to` in place of each `from`.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

std::string_view trim(std::string_view text);  // spaces and tabs at both ends

// In ASCII, in every locale.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_alphanumeric(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_printable(char c) { return c >= ' ' && c <= '~'; }

// For error messages about text from users: control and non-ASCII bytes as \xNN, at most `max` bytes shown.
std::string quote(std::string_view text, std::size_t max = 80);

// For tables: unchanged if each byte is a printable ASCII character, else quoted. A user's value may hold line feeds
// and control sequences of a terminal.
std::string printable(std::string_view text);

// "1 task", "2 tasks".
std::string counted(std::uint64_t count, std::string_view what);

// FNV-1a, 32 bit. Not a secure hash: it recognises a value that this project wrote.
std::uint32_t fingerprint(std::string_view text);

inline constexpr std::size_t kTableWidth = 80;

void pad_to(std::string& line, std::size_t column);

// Adds `line` with `text` at `column` to `out`, broken between words so that it stays within the width.
void append_wrapped(std::string& out, std::string line, std::size_t column, std::string_view text);

// Ascending numbers in short form: "0-3,8".
template <class Number = std::uint32_t>
std::string write_ranges(const std::vector<Number>& ascending) {
  std::string text;
  for (std::size_t start = 0; start < ascending.size();) {
    auto end = start + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(ascending[start]);
    if (end - start > 1) text += "-" + std::to_string(ascending[end - 1]);
    start = end;
  }
  return text;
}

// A list of byte strings as one text, for two processes of the same executable on one machine: sizes are in the
// machine's own byte order. decode_strings() returns nullopt unless the text is exactly one list.
std::string encode_strings(const std::vector<std::string>& strings);
std::optional<std::vector<std::string>> decode_strings(std::string_view text);

// For exec(3): a pointer to each text and a null pointer behind the last. Valid as long as the texts.
std::vector<char*> pointers_to(std::vector<std::string>& texts);

// True if `word` is one of the words in `list`.
bool has_word(std::string_view list, std::string_view word, char separator = ' ') noexcept;

// JSON (RFC 8259) as text, always ASCII.

// In quotes. Bytes above 0x7e become \u00NN one by one: an environment value need not be UTF-8, and JSON must be.
std::string json_string(std::string_view text);

std::string json_member(std::string_view name, std::string_view json);  // "name": json
std::string json_number(std::string_view name, std::uint64_t value);

// `items` one to a line inside the brackets.
std::string json_list(const std::vector<std::string>& items);

}  // namespace bootstrap
