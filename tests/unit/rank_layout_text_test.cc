// The layout text: what is written is read back the same, short where it can be, and garbage is refused.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/rank_layout_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/util/text.h"

namespace bootstrap {
namespace {

using Counts = std::vector<std::uint32_t>;

std::string write(const Counts& counts, const std::vector<NodeIndex>& map) {
  return *write_layout(12, 3, {{12, "n[1-9]", counts, map}}, {});
}

TEST(LayoutText, NamesTheUsualOrders) {
  EXPECT_EQ(write({2, 2}, deal_block({2, 2})), "12.3/block");
  EXPECT_EQ(write({2, 2}, deal_cyclic({2, 2})), "12.3/cyclic");
  EXPECT_EQ(write({4, 3}, deal_plane({4, 3}, 2)), "12.3/plane:2");
  EXPECT_EQ(write({1, 1, 2}, {2, 0, 1, 2}), "12.3/map:2,0,1,2");
  EXPECT_EQ(write({3, 1}, {1, 0, 0, 0}), "12.3/map:1,0x3");
}

TEST(LayoutText, ComponentsCarryTheirOwn) {
  const auto text = write_layout(43, 0, {{43, "n[1-2]", {2, 2}, deal_block({2, 2})}, {44, "n3", {1}, {0}}}, {});
  EXPECT_EQ(*text, "43.0/43;n[1-2];2x2;block/44;n3;1;block");
  const auto read = read_layout(*text, *HostList::parse("n[1-3]"), {2, 2, 1});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->component_jobs, Counts({43, 44}));
  EXPECT_EQ(read->components[1].nodes.at(0), "n3");
}

TEST(LayoutText, CarriesTheAddressOfMasterAddr) {
  const std::vector<ComponentText> components{{43, "n1", {1}, {0}}, {44, "n2", {1}, {0}}};
  const auto text = *write_layout(43, 0, components, {.master_ip = "10.0.0.1", .with_nodes = false});
  EXPECT_EQ(text, "43.0/43;n1;1;block/44;n2;1;block@10.0.0.1");
  const auto read = read_layout(text, *HostList::parse("n[1-2]"), {1, 1});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->master_ip, "10.0.0.1");
  EXPECT_EQ(read->component_jobs, Counts({43, 44}));
}

TEST(LayoutText, ComesBackTheSame) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    Counts counts(1 + random() % 7);
    for (auto& count : counts) count = static_cast<std::uint32_t>(1 + random() % 4);
    auto map = deal_plane(counts, static_cast<std::uint32_t>(1 + random() % 4));
    if (round % 3 == 0) std::shuffle(map.begin(), map.end(), random);
    const auto read =
        read_layout(write(counts, map), *HostList::parse("n[1-" + std::to_string(counts.size()) + "]"), counts);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->job, 12U);
    EXPECT_EQ(read->step, 3U);
    EXPECT_EQ(read->components.at(0).node_of_rank, map);
    EXPECT_EQ(read->components.at(0).tasks_per_node, counts);
  }
}

TEST(LayoutText, IsForOneStep) {
  EXPECT_TRUE(layout_is_for("12.3/block", 12, 3));
  EXPECT_FALSE(layout_is_for("12.30/block", 12, 3));
  EXPECT_FALSE(layout_is_for("112.3/block", 12, 3));
  EXPECT_FALSE(layout_is_for("", 12, 3));
}

TEST(LayoutText, RefusesGarbage) {
  EXPECT_FALSE(read_layout("", *HostList::parse("n[1-2]"), {2, 2}));
  for (const auto text :
       split("block 12/block 12.3 12.3/ 12.3/diagonal 12.3/plane:0 12.3/plane: 12.3/map: 12.3/map:0 12.3/map:0,0,0,1 "
             "12.3/map:0,9,1,1 12.3/map:0x2,1x99999999 x.3/block 12.x/block 12.3/block;block 12.3/1;2;3;4;5 "
             "12.3/1;n1;1x9999999;block 12.3/x;n1;1;block 12.3/-1/block 12.3/block/13;n2;1;block",
             ' ')) {
    EXPECT_FALSE(read_layout(text, *HostList::parse("n[1-2]"), {2, 2})) << text;
  }
}

TEST(LayoutText, LargeClaimsAreRefusedBeforeTheyCost) {
  const auto nodes = *HostList::parse("n[1-2]");
  std::string many = "12.0/";
  for (int i = 0; i < 129; ++i) many += (i == 0 ? "" : "/") + std::string("1;n1;1;block");
  for (const auto& text : {many, std::string("12.0/1;a[1-1048576];1x1048576;block"),
                           std::string("12.0/1;a[1-40000];1x40000;block/1;b[1-40000];1x40000;block"),
                           std::string("12.0/1;a;1048577;block"), std::string("12.0/1;a[1-2];0,1;block"),
                           "12.0/map:" + std::string(60000, '0')}) {
    EXPECT_FALSE(read_layout(text, nodes, {2, 2})) << text.substr(0, 60);
  }
}

TEST(LayoutText, TooIrregularForAVariableIsSaid) {
  std::vector<NodeIndex> map = deal_block(Counts(20000, 2));
  std::mt19937 random(1);
  std::shuffle(map.begin(), map.end(), random);
  const auto text = write_layout(1, 0, {{1, "n[1-20000]", Counts(20000, 2), map}}, {});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace bootstrap
