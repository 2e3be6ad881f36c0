// The version of this project: one for plugin, library and command.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace bootstrap {

inline constexpr std::string_view kVersion = BOOTSTRAP_VERSION;  // "0.1.0", from CMakeLists.txt

}  // namespace bootstrap
