// Message sizes as people write them, and the bandwidths of an all-reduce as nccl-tests defines them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/result.h"

namespace bootstrap {

// "8", "64K", "128M", "1G": bytes, K is 1024. kInvalid names `option`.
Result<std::uint64_t> parse_bytes(std::string_view option, std::string_view text);

// The other way round, in the largest unit that divides it: "128 MiB", "12 bytes".
std::string bytes_text(std::uint64_t bytes);

struct SizeRange {
  std::uint64_t least = 8;
  std::uint64_t most = std::uint64_t{128} << 20;
  std::uint64_t factor = 2;
};
inline constexpr std::uint64_t kFloatBytes = 4;  // all sizes are whole numbers of these

// least, least * factor, ... up to `most`. kInvalid with the option that is wrong.
Result<std::vector<std::uint64_t>> sizes_of(const SizeRange& range);

// Bytes of one rank's buffer for each nanosecond: GB/s with G for 10^9.
double algorithm_bandwidth(std::uint64_t bytes, double microseconds);

// What the slowest link carries at least, whatever the algorithm: an all-reduce of n ranks moves 2(n-1)/n of the
// buffer over it (nccl-tests, doc/PERFORMANCE.md). 0 for one rank, which moves nothing.
double bus_bandwidth(std::uint64_t bytes, double microseconds, std::uint32_t ranks);

}  // namespace bootstrap
