// Lists of numbers in the short form people read: "0-3,8".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bootstrap {

std::string write_ranges(const std::vector<std::uint32_t>& ascending);

}  // namespace bootstrap
