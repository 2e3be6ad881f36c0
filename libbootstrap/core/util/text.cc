// Small pure functions on text: joining, splitting, numbers, tables of 80 columns, lists, JSON.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/text.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace bootstrap {

constinit const std::string_view kVersion = BOOTSTRAP_VERSION_TEXT;

std::string cat(std::initializer_list<std::string_view> parts) {
  std::size_t length = 0;
  for (const auto part : parts) length += part.size();
  std::string joined;
  joined.reserve(length);
  for (const auto part : parts) joined.append(part);
  return joined;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  for (;;) {
    const auto end = text.find(separator, start);
    if (end == std::string_view::npos) break;
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  parts.push_back(text.substr(start));
  return parts;
}

std::optional<std::uint64_t> parse_digits(std::string_view text, std::uint64_t max, int base) {
  // from_chars accepts no leading space or '+', and a '-' only for signed types.
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size() || value > max) return std::nullopt;
  return value;
}

std::string to_hex(std::uint64_t value, std::size_t width) {
  constexpr int kHexadecimal = 16;
  char digits[kHexadecimal];
  const auto size = static_cast<std::size_t>(std::to_chars(digits, std::end(digits), value, kHexadecimal).ptr - digits);
  std::string text(width > size ? width - size : 0, '0');
  return text.append(digits, size);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (auto at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::string counted(std::uint64_t count, std::string_view what) {
  return cat({std::to_string(count), " ", what, count == 1 ? "" : "s"});
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string quote(std::string_view text, std::size_t max) {
  std::string shown = "\"";
  for (const char character : text.substr(0, max)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\') {
      shown += character;
    } else {
      shown.append("\\x").append(to_hex(byte, 2));
    }
  }
  shown += text.size() > max ? "...\"" : "\"";
  return shown;
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMax = 256;
  return std::all_of(text.begin(), text.end(), is_printable) ? std::string(text) : quote(text, kMax);
}

std::uint32_t fingerprint(std::string_view text) {
  std::uint32_t hash = 2166136261U;
  for (const char character : text) hash = (hash ^ static_cast<unsigned char>(character)) * 16777619U;
  return hash;
}

void pad_to(std::string& line, std::size_t column) {
  if (line.size() < column) line.append(column - line.size(), ' ');
}

void append_wrapped(std::string& out, std::string line, std::size_t column, std::string_view text) {
  const auto end_line = [&] {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
    line.clear();
  };
  pad_to(line, column);
  for (const auto word : split(text, ' ')) {
    if (line.size() + word.size() > kTableWidth && line.size() > column) {
      end_line();
      pad_to(line, column);
    }
    line += cat({word, " "});
  }
  end_line();
}

std::string encode_strings(const std::vector<std::string>& strings) {
  std::size_t size = 0;
  for (const auto& string : strings) size += sizeof(std::uint32_t) + string.size();
  std::string text;
  text.reserve(size);  // to grow the text later would leave copies of a secret in freed memory
  for (const auto& string : strings) {
    const auto length = static_cast<std::uint32_t>(string.size());
    text.append(reinterpret_cast<const char*>(&length), sizeof length).append(string);
  }
  return text;
}

std::optional<std::vector<std::string>> decode_strings(std::string_view text) {
  std::vector<std::string> strings;
  while (!text.empty()) {
    std::uint32_t length = 0;
    if (text.size() < sizeof length) return {};
    std::memcpy(&length, text.data(), sizeof length);
    text.remove_prefix(sizeof length);
    if (text.size() < length) return {};
    strings.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return strings;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

bool has_word(std::string_view list, std::string_view word, char separator) noexcept {
  while (!list.empty()) {
    const auto end = std::min(list.find(separator), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      out += {'\\', character};
    } else if (byte < 0x20 || byte >= 0x7f) {
      out.append("\\u").append(to_hex(byte, 4));
    } else {
      out += character;
    }
  }
  return out + "\"";
}

std::string json_member(std::string_view name, std::string_view json) { return cat({json_string(name), ": ", json}); }

std::string json_number(std::string_view name, std::uint64_t value) { return json_member(name, std::to_string(value)); }

std::string json_list(const std::vector<std::string>& items) {
  return items.empty() ? "[]" : cat({"[\n    ", join(items, ",\n    "), "\n  ]"});
}

}  // namespace bootstrap
