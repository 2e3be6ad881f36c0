// Message sizes as people write them, and the bandwidths of an all-reduce as nccl-tests defines them.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bandwidth.h"

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
constexpr unsigned kStep = 10;  // from one unit to the next, in bits

unsigned shift_of(char unit) {
  constexpr std::string_view kUnits = "KkMmGg";
  const auto at = kUnits.find(unit);
  return at == std::string_view::npos ? 0 : kStep * (static_cast<unsigned>(at) / 2 + 1);
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view option, std::string_view text) {
  const unsigned shift = text.empty() ? 0 : shift_of(text.back());
  const auto number = parse_unsigned(shift == 0 ? text : text.substr(0, text.size() - 1), kMostBytes >> shift);
  if (number) return *number << shift;
  return fail(ErrorCode::kInvalid,
              cat({option, " is ", quoted(text, 20), "; it takes bytes, such as 8, 64K, 128M or 4G, 1024G at most"}));
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::string_view kUnits[] = {" bytes", " KiB", " MiB", " GiB"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return cat({std::to_string(bytes), kUnits[unit]});
}

Result<std::vector<std::uint64_t>> sizes_of(const SizeRange& range) {
  const auto least = std::to_string(range.least);
  if (range.least == 0 || range.least % kFloatBytes != 0) {
    return fail(ErrorCode::kInvalid, cat({"--min-bytes is ", least, "; it takes a multiple of ",
                                          std::to_string(kFloatBytes), ", since floats are added"}));
  }
  if (range.most < range.least) {
    return fail(ErrorCode::kInvalid,
                cat({"--max-bytes is ", std::to_string(range.most), ", below the ", least, " of --min-bytes"}));
  }
  if (range.factor < 2) {
    return fail(ErrorCode::kInvalid, cat({"--factor is ", std::to_string(range.factor), "; it takes 2 or more"}));
  }
  std::vector<std::uint64_t> sizes;
  for (auto size = range.least;; size *= range.factor) {
    sizes.push_back(size);
    if (size > range.most / range.factor) return sizes;
  }
}

double algorithm_bandwidth(std::uint64_t bytes, double microseconds) {
  constexpr double kNanoseconds = 1000;  // in a microsecond
  return microseconds > 0 ? static_cast<double>(bytes) / (microseconds * kNanoseconds) : 0;
}

double bus_bandwidth(std::uint64_t bytes, double microseconds, std::uint32_t ranks) {
  if (ranks < 2) return 0;
  return algorithm_bandwidth(bytes, microseconds) * 2 * (ranks - 1) / ranks;
}

}  // namespace bootstrap
