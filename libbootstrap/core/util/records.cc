// Structs as text, for other processes of this project.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/records.h"

#include <algorithm>

namespace bootstrap {

std::string write_field(const std::string& value) {
  auto text = value.substr(0, kMaxField);
  std::replace_if(
      text.begin(), text.end(), [](char character) { return !is_printable(character); }, '?');
  return text;
}

// Lists the first entries and cuts long ones.
std::string write_field(const std::vector<std::string>& items) {
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

bool read_field(std::string_view text, std::string& value) {
  value = text;
  return text.size() <= kMaxField && std::all_of(text.begin(), text.end(), is_printable);
}

bool read_field(std::string_view text, std::vector<std::string>& items) {
  std::string checked;
  if (!read_field(text, checked)) return false;
  const auto words = text.empty() ? std::vector<std::string_view>() : split(text, ' ');
  items.assign(words.begin(), words.end());
  return items.size() <= kMaxFieldItems && std::find(words.begin(), words.end(), "") == words.end();
}

}  // namespace bootstrap
