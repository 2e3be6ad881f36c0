// Reads one line of JSON that another process wrote: an object of numbers, texts, and lists of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace bootstrap {

using JsonValue = std::variant<std::uint64_t, std::string, std::vector<std::uint64_t>, std::vector<std::string>>;
using JsonObject = std::map<std::string, JsonValue, std::less<>>;

inline constexpr std::size_t kMaxJsonLine = std::size_t{256} << 10;

// Nothing unless the whole line is such an object. true and false are 1 and 0. The bytes of a text are those that
// json_string() was given; what json_string() does not write, such as \u20ac, becomes '?'.
std::optional<JsonObject> read_flat_json(std::string_view line);

}  // namespace bootstrap
