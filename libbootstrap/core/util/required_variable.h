// Variables that must be there, or the sentence that says which is not.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

Result<std::string_view> require(const Environment& environment, std::string_view name);
Result<std::uint32_t> require_number(const Environment& environment, std::string_view name);

}  // namespace bootstrap
