// Secrets: random numbers that other users cannot guess, and memory that is overwritten after use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string.h>
#include <sys/random.h>

#include <cstdint>
#include <optional>
#include <string>

namespace bootstrap {

// Never waits. Empty if the kernel has no random bits yet, early after its start.
inline std::optional<std::uint64_t> random_bits() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) return std::nullopt;
  return bits;
}

// Clears a unique id: a reader of a core file, or of memory that is used again, could join in a rank's place. The
// compiler keeps this call, unlike memset.
inline void wipe(std::string& secret) {
  ::explicit_bzero(secret.data(), secret.size());
  secret.clear();
}

}  // namespace bootstrap
