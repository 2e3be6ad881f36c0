// A list of byte strings as one text, between two processes of this project on one host.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/string_list.h"

#include <cstdint>
#include <cstring>

namespace bootstrap {

std::string encode_strings(const std::vector<std::string>& strings) {
  std::size_t size = 0;
  for (const auto& string : strings) size += sizeof(std::uint32_t) + string.size();
  std::string text;
  text.reserve(size);  // so that no copy of a secret stays behind in memory that was too small
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

}  // namespace bootstrap
