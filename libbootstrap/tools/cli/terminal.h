// Whether what a user reads may have colours.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace bootstrap {

// On a terminal, unless NO_COLOR is set (no-color.org) or the terminal knows none.
inline bool has_colours(std::FILE* file) {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return ::isatty(::fileno(file)) == 1 && (refused == nullptr || *refused == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

}  // namespace bootstrap
