// Who can change a file that decides something for others, and whether this process may use one.
// SPDX-License-Identifier: Apache-2.0
#include "probe/file_permissions.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/util/text.h"

namespace bootstrap {

std::string distrust_of_writers(const struct stat& status) {
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    return cat({"it belongs to uid ", std::to_string(status.st_uid), "; change its owner to root with chown"});
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return "";
  return "users other than its owner can write to it; forbid that with chmod go-w";
}

std::string distrust_of_writers(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? distrust_of_writers(status) : "";
}

bool may_access(const std::string& path, int how) { return ::faccessat(AT_FDCWD, path.c_str(), how, AT_EACCESS) == 0; }

}  // namespace bootstrap
