// LD_PRELOAD as a list: where a library is added to what the user has there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace bootstrap {

// `current` with `library` as its last entry: the runtimes of sanitizers must come first. Unchanged when it, or another
// file of that name, is in the list already. Entries are separated by spaces or colons, as ld.so(8) says.
std::string append_preload(std::string_view current, std::string_view library);

}  // namespace bootstrap
