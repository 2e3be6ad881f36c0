// Pieces of JSON (RFC 8259) as text, for what is written by hand: always ASCII, whatever the values hold.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bootstrap {

// In quotes. Bytes above 0x7e become \u00NN one by one: an environment value need not be UTF-8, and JSON must be.
std::string json_string(std::string_view text);

std::string json_member(std::string_view name, std::string_view json);  // "name": json
std::string json_number(std::string_view name, std::uint64_t value);

// `items` one to a line inside the brackets.
std::string json_list(const std::vector<std::string>& items);

}  // namespace bootstrap
