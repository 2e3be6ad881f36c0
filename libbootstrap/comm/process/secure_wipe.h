// Forgetting a unique id: whoever reads it in a core file or in memory that is used again could take a rank's place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string.h>

#include <string>

namespace bootstrap {

// The compiler may not leave these out, as it may with memset.
inline void wipe(std::string& secret) {
  ::explicit_bzero(secret.data(), secret.size());
  secret.clear();
}

}  // namespace bootstrap
