// A list of byte strings as one text, between two processes of this project on one host.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bootstrap {

// Both ends are the same file on the same machine, so that sizes are written as the machine has them.
std::string encode_strings(const std::vector<std::string>& strings);

// Nothing unless `text` is a whole list and nothing else.
std::optional<std::vector<std::string>> decode_strings(std::string_view text);

}  // namespace bootstrap
