// Small pure functions on text: concatenation, splitting, and number parsing that cannot overflow or guess.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bootstrap {

std::string cat(std::initializer_list<std::string_view> parts);

// "a,,b" split at ',' gives {"a", "", "b"}; an empty text gives {""}.
std::vector<std::string_view> split(std::string_view text, char separator);

// Decimal digits only: no sign, no space, no prefix; nothing when the value is above `max`.
std::optional<std::uint64_t> parse_unsigned(std::string_view text, std::uint64_t max = UINT64_MAX);

// Hexadecimal digits in lower case, at least `width` of them; and back, likewise without a prefix.
std::string to_hex(std::uint64_t value, std::size_t width = 1);
std::optional<std::uint64_t> parse_hex(std::string_view text, std::uint64_t max = UINT64_MAX);

// `text` with each `from` replaced.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

std::string_view trim(std::string_view text);  // spaces and tabs at both ends

// Of ASCII, whatever the locale.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_alphanumeric(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_printable(char c) { return c >= ' ' && c <= '~'; }

// For error messages about text from users: control and non-ASCII bytes as \xNN, at most `max` bytes shown.
std::string quoted(std::string_view text, std::size_t max = 80);

// For tables: as it is where each byte is a printable ASCII character, else quoted. A value of the user's may hold line
// feeds, and bytes that a terminal obeys.
std::string printable(std::string_view text);

// Whether another process's text may go into a message: no more than `max` bytes, each of them printable ASCII.
bool is_printable_text(std::string_view text, std::size_t max);

// "1 task", "2 tasks".
std::string counted(std::uint64_t count, std::string_view what);

// FNV-1a, 32 bit. Not a secure hash: it tells whether a value is the one that we wrote.
std::uint32_t fingerprint(std::string_view text);

}  // namespace bootstrap
