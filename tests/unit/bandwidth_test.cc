// Sizes as people write them, and bus bandwidth against figures worked out by hand from nccl-tests' definition.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bandwidth.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bootstrap {
namespace {

std::string refusal(std::string_view text) {
  const auto bytes = parse_bytes("--min-bytes", text);
  return bytes ? "" : bytes.error().message;
}

TEST(Bandwidth, BytesHaveUnits) {
  EXPECT_EQ(parse_bytes("-", "8"), 8U);
  EXPECT_EQ(parse_bytes("-", "0"), 0U);
  EXPECT_EQ(parse_bytes("-", "64K"), 65536U);
  EXPECT_EQ(parse_bytes("-", "128M"), 134217728U);
  EXPECT_EQ(parse_bytes("-", "128m"), 134217728U);
  EXPECT_EQ(parse_bytes("-", "4G"), 4294967296U) << "beyond 32 bits";
  EXPECT_EQ(parse_bytes("-", "1024G"), std::uint64_t{1} << 40);
}

TEST(Bandwidth, WhatIsNoSizeIsRefusedByName) {
  EXPECT_EQ(refusal("x"), "--min-bytes is \"x\"; it takes bytes, such as 8, 64K, 128M or 4G, 1024G at most");
  for (const char* const text :
       {"", "K", "-8", "+8", "8 K", "1.5M", "8KB", "8T", "1025G", "99999999999999999999", "0x8", "17179869184G"}) {
    EXPECT_NE(refusal(text), "") << text;
  }
}

TEST(Bandwidth, BytesInWords) {
  EXPECT_EQ(bytes_text(8), "8 bytes");
  EXPECT_EQ(bytes_text(1024), "1 KiB");
  EXPECT_EQ(bytes_text(1536), "1536 bytes") << "exact, not rounded";
  EXPECT_EQ(bytes_text(std::uint64_t{128} << 20), "128 MiB");
  EXPECT_EQ(bytes_text(std::uint64_t{2048} << 30), "2048 GiB");
  EXPECT_EQ(bytes_text(0), "0 bytes");
}

TEST(Bandwidth, SizesGrowByTheFactorUpToTheMost) {
  using Sizes = std::vector<std::uint64_t>;
  EXPECT_EQ(sizes_of({.least = 8, .most = 64, .factor = 2}), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sizes_of({.least = 8, .most = 65, .factor = 2}), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sizes_of({.least = 12, .most = 1000, .factor = 10}), (Sizes{12, 120}));
  EXPECT_EQ(sizes_of({.least = 4, .most = 4, .factor = 1000000}), (Sizes{4}));
  EXPECT_EQ(sizes_of({})->size(), 25U) << "8 bytes to 128 MiB";
  constexpr auto kMost = std::uint64_t{1} << 40;
  EXPECT_EQ(sizes_of({.least = 4, .most = kMost, .factor = kMost})->size(), 1U) << "no overflow";
}

TEST(Bandwidth, RangesThatAreNoneAreRefused) {
  EXPECT_EQ(sizes_of({.least = 6}).error().message,
            "--min-bytes is 6; it takes a multiple of 4, since floats are added");
  EXPECT_EQ(sizes_of({.least = 0}).error().message,
            "--min-bytes is 0; it takes a multiple of 4, since floats are added");
  EXPECT_EQ(sizes_of({.least = 16, .most = 8}).error().message, "--max-bytes is 8, below the 16 of --min-bytes");
  EXPECT_EQ(sizes_of({.factor = 1}).error().message, "--factor is 1; it takes 2 or more");
}

// 1 GB in 10 ms is 100 GB/s; 8 ranks move 2 * 7/8 of the buffer over each link, so 175 GB/s.
TEST(Bandwidth, AsNcclTestsDefinesIt) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(1000000000, 10000), 100);
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000000000, 10000, 8), 175);
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000000000, 10000, 2), 100) << "two ranks: the same as algbw";
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000000000, 10000, 4), 150);
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000000000, 10000, 1), 0) << "nothing goes over any link";
  EXPECT_DOUBLE_EQ(bus_bandwidth(8, 0, 4), 0) << "no time, no bandwidth";
  EXPECT_NEAR(bus_bandwidth(1000000000, 10000, 1000000), 200, 0.001);
}

}  // namespace
}  // namespace bootstrap
