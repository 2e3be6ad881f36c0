// Sets of CPUs: both ways of writing them, what is refused, and the algebra against std::set.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/cpu_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>

namespace bootstrap {
namespace {

using Members = std::vector<std::size_t>;

CpuSet list(std::string_view text) {
  auto set = CpuSet::parse_list(text);
  EXPECT_TRUE(set) << text;
  return set ? *set : CpuSet();
}

CpuSet mask(std::string_view text) {
  auto set = CpuSet::parse_mask(text);
  EXPECT_TRUE(set) << text;
  return set ? *set : CpuSet();
}

TEST(CpuSet, ReadsListsOfSysfs) {
  EXPECT_EQ(list("").members(), Members());
  EXPECT_EQ(list("0").members(), Members({0}));
  EXPECT_EQ(list("0-3,8").members(), Members({0, 1, 2, 3, 8}));
  EXPECT_EQ(list("8,2-3,2").members(), Members({2, 3, 8}));
  EXPECT_EQ(list("63-64").members(), Members({63, 64}));
  EXPECT_EQ(list("0-16383").count(), CpuSet::kMaxCpus);
}

TEST(CpuSet, ReadsMasksOfSlurm) {
  EXPECT_EQ(mask("0x0").members(), Members());
  EXPECT_EQ(mask("0xFF"), list("0-7"));
  EXPECT_EQ(mask("ff"), list("0-7"));
  EXPECT_EQ(mask("0x8000000000000000000000000000000000000001"), list("0,159"));
  EXPECT_EQ(mask("0x" + std::string(4096, 'f')), list("0-16383"));
  EXPECT_EQ(mask("0x" + std::string(4095, '0') + "1"), list("0"));
}

TEST(CpuSet, RefusesListsThatAreNone) {
  for (const auto* const text : {",", "0,", ",0", "a", "-", "1-", "-1", "1-2-3", "3-1", "0x1", "0 ", "0-3\n", "1:2",
                                 "16384", "0-16384", "99999999999999999999"}) {
    const auto set = CpuSet::parse_list(text);
    ASSERT_FALSE(set) << text;
    EXPECT_NE(set.error().message.find("the CPU list \""), std::string::npos) << set.error().message;
  }
  EXPECT_EQ(CpuSet::parse_list(std::string(200000, '0')).error().code, ErrorCode::kLimit);
  EXPECT_EQ(CpuSet::parse_list("3-1").error().message, "the CPU list \"3-1\" has a range that counts down");
}

TEST(CpuSet, RefusesMasksThatAreNone) {
  for (const auto* const text : {"", "0x", ",", "0x1,0x1", "0xg", "0xf...f", "x1", "0x1 ", "-1", "0x0x1"}) {
    const auto set = CpuSet::parse_mask(text);
    ASSERT_FALSE(set) << text;
    EXPECT_NE(set.error().message.find("the CPU mask \""), std::string::npos) << set.error().message;
  }
  EXPECT_EQ(CpuSet::parse_mask("0x1" + std::string(4096, '0')).error().code, ErrorCode::kLimit);
}

TEST(CpuSet, EqualSetsAreEqualHoweverWritten) {
  EXPECT_EQ(mask("0x000000000000000000000003"), list("0-1"));
  EXPECT_EQ(list("0,200") & list("0-7"), list("0"));
  EXPECT_TRUE((list("100") & list("200")).empty());
}

TEST(CpuSet, WritesWhatItReads) {
  for (const auto* const text : {"", "0", "0-1", "0-3,8", "1,3,5", "63-64,127-128,16383"}) {
    EXPECT_EQ(list(text).to_list(), text);
  }
}

TEST(CpuSet, IsASet) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::set<std::size_t> a, b, both, either, rest;
    CpuSet mine, other;
    const auto range = 1 + random() % 400;
    for (auto i = random() % 60; i > 0; --i) {
      const auto [x, y] = std::pair(random() % range, random() % range);
      a.insert(x), mine.add(x);
      b.insert(y), other.add(y);
    }
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::inserter(either, either.end()));
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(rest, rest.end()));
    EXPECT_EQ(mine.members(), Members(a.begin(), a.end()));
    EXPECT_EQ(mine.count(), a.size());
    EXPECT_EQ((mine & other).members(), Members(both.begin(), both.end()));
    EXPECT_EQ((mine | other).members(), Members(either.begin(), either.end()));
    EXPECT_EQ((mine - other).members(), Members(rest.begin(), rest.end()));
    EXPECT_EQ(mine - mine, CpuSet());
    EXPECT_EQ(mine.is_within(other), std::includes(b.begin(), b.end(), a.begin(), a.end()));
    EXPECT_EQ(list(mine.to_list()), mine);
    for (std::size_t cpu = 0; cpu < range + 70; ++cpu) EXPECT_EQ(mine.has(cpu), a.count(cpu) == 1);
  }
}

}  // namespace
}  // namespace bootstrap
