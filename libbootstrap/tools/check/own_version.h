// The version of this command, as ranks compare it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "bootstrap/bootstrap.h"
#include "core/util/text.h"

namespace bootstrap {

// As bootstrap_version() answers it: 100 is "0.1.0".
inline std::string version_text(int version) {
  return cat(
      {std::to_string(version / 10000), ".", std::to_string(version / 100 % 100), ".", std::to_string(version % 100)});
}

inline std::string own_version() {
  return version_text(BOOTSTRAP_VERSION_MAJOR * 10000 + BOOTSTRAP_VERSION_MINOR * 100 + BOOTSTRAP_VERSION_PATCH);
}

}  // namespace bootstrap
