// Sets of CPUs: the kernel's text, refused texts, and the set operations compared with std::set.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/cpu_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>

#include "known_node.h"

namespace bootstrap {
namespace {

using Members = std::vector<std::size_t>;

TEST(CpuSet, ReadsListsOfSysfs) {
  EXPECT_EQ(cpus("").members(), Members());
  EXPECT_EQ(cpus("0-3,8").members(), Members({0, 1, 2, 3, 8}));
  EXPECT_EQ(cpus("8,2-3,2").members(), Members({2, 3, 8}));
  EXPECT_EQ(cpus("63-64").members(), Members({63, 64}));
  EXPECT_EQ(cpus("5,0-8191").count(), CpuSet::kMaxCpus);
  EXPECT_EQ(cpus("7,5").first(), 5U);
}

TEST(CpuSet, RefusesInvalidLists) {
  for (const auto* const text : {",", "0,", ",0", "a", "-", "1-", "-1", "1-2-3", "3-1", "0x1", "0 ", "0-3\n", "1:2",
                                 "8192", "0-8192", "99999999999999999999"}) {
    EXPECT_FALSE(CpuSet::parse_list(text)) << text;
  }
}

TEST(CpuSet, WritesWhatItReads) {
  for (const auto* const text : {"", "0", "0-1", "0-3,8", "1,3,5", "63-64,127-128,8191"}) {
    EXPECT_EQ(cpus(text).to_list(), text);
  }
}

TEST(CpuSet, HasTheOperationsOfASet) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::set<std::size_t> a, b, both, either;
    CpuSet mine, other;
    const auto range = 1 + random() % 400;
    for (auto i = random() % 60; i > 0; --i) {
      const auto [x, y] = std::pair(random() % range, random() % range);
      a.insert(x), mine.add(x);
      b.insert(y), other.add(y);
    }
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::inserter(either, either.end()));
    EXPECT_EQ(mine.members(), Members(a.begin(), a.end()));
    EXPECT_EQ(mine.count(), a.size());
    EXPECT_EQ((mine & other).members(), Members(both.begin(), both.end()));
    EXPECT_EQ((mine | other).members(), Members(either.begin(), either.end()));
    EXPECT_EQ(mine.is_within(other), std::includes(b.begin(), b.end(), a.begin(), a.end()));
    EXPECT_EQ(cpus(mine.to_list()), mine);
  }
}

}  // namespace
}  // namespace bootstrap
