// A file that is written whole or not at all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/util/result.h"

namespace bootstrap {

// Replaces `path`, with mode 0644. Who reads it meanwhile, as a step that starts reads a topology, sees the old file or
// the new one, and nobody but the owner can write to it at any time.
Status replace_file(const std::string& path, std::string_view text);

}  // namespace bootstrap
