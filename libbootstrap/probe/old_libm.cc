// The only function of libm.so.6 that a standard library of clang's calls, for x86-64 without SSE4.1: to count buckets.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

extern "C" float ceilf(float number) {
  const auto whole = static_cast<float>(static_cast<std::int64_t>(number));
  return whole < number ? whole + 1 : whole;
}
