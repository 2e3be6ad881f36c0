// Lists of numbers in the short form people read: "0-3,8".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bootstrap {

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

}  // namespace bootstrap
