// Who can change a file.
// SPDX-License-Identifier: Apache-2.0
#include "probe/file_trust.h"

namespace bootstrap {

std::string distrust_of_writers(const struct stat& status) {
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return "";
  return "others than its owner can write to it; take that away with chmod go-w";
}

std::string distrust_of_writers(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? distrust_of_writers(status) : "";
}

}  // namespace bootstrap
