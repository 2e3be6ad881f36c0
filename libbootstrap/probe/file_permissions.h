// Who can change a file that decides something for others, and whether this process may use one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>

namespace bootstrap {

// Why a file should not be believed, as the end of a sentence, with what to do; empty when nobody but its owner can
// write to it, and that is root, or the user that this process runs as. The folders above it are not looked at: who may
// write to those can put another file in its place.
std::string distrust_of_writers(const struct stat& status);

// The same by name. Empty, too, when the file cannot be looked at: whoever then opens it has a better reason to tell.
std::string distrust_of_writers(const std::string& path);

// access(2) for the user that this process acts as (R_OK, W_OK, X_OK). In some hooks of slurmstepd that is the step's
// user, while the real user id, by which access(2) itself goes, is root's. The error is in errno.
bool may_access(const std::string& path, int how);

}  // namespace bootstrap
