// Pieces of JSON (RFC 8259) as text, for what is written by hand: always ASCII, whatever the values hold.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/json.h"

#include "core/util/text.h"

namespace bootstrap {

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
  std::string out = "[";
  for (const auto& item : items) out += cat({out.size() > 1 ? ",\n    " : "\n    ", item});
  return out + (items.empty() ? "]" : "\n  ]");
}

}  // namespace bootstrap
