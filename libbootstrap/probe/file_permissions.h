// Whether a file that decides something for others may be believed: not where anybody but its owner can change it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>

namespace bootstrap {

// Why not, as the end of a sentence, with what to do; empty when nobody but its owner can write to it. The folders
// above it are not looked at: who may write to those can put another file in its place.
std::string distrust_of_writers(const struct stat& status);

// The same by name. Empty, too, when the file cannot be looked at: whoever then opens it has a better reason to tell.
std::string distrust_of_writers(const std::string& path);

}  // namespace bootstrap
