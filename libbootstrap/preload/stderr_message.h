// What the preloaded library says to people: whole lines on standard error, without harm to the program around it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace bootstrap {

// Writes the line and a newline in one piece. A closed standard error or a broken pipe is passed over: no SIGPIPE
// reaches the program. errno stays as it was.
void say(std::string_view line) noexcept;

}  // namespace bootstrap
