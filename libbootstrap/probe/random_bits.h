// Random numbers that another user cannot guess: keys and tokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <optional>

namespace bootstrap {

// Never waits. Nothing where the kernel has no random bits yet, early after its start.
inline std::optional<std::uint64_t> random_bits() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) return std::nullopt;
  return bits;
}

}  // namespace bootstrap
