// Layouts compared with a slow, obvious oracle; Slurm's distributions of tasks; the names of ranks; and the text from
// srun to the nodes, which is read as it was written, and as short as possible.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/rank_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/step/host_list.h"
#include "core/util/text.h"
#include "known_layout.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

using Counts = std::vector<std::uint32_t>;

LayoutComponent component(const std::string& nodes, std::vector<std::uint32_t> counts, std::vector<NodeIndex> map) {
  return {*parse_host_list(nodes), std::move(counts), std::move(map)};
}

TEST(TasksPerNode, ReadsSlurmsForm) {
  EXPECT_EQ(*parse_tasks_per_node("4"), Counts({4}));
  EXPECT_EQ(*parse_tasks_per_node("2(x3),1"), Counts({2, 2, 2, 1}));
  EXPECT_EQ(*parse_tasks_per_node("1,2(x2),1"), Counts({1, 2, 2, 1}));
}

TEST(TasksPerNode, RefusesOtherText) {
  for (const auto* text : {"", ",", "2(x3", "2(x0)", "2x3", "(x3)", "-1", "2(x3),", "1 ", "99999999999", "1(x2000000)",
                           "1048577", "524289(x2)", "2(x3)4", "()", "2(x)"}) {
    EXPECT_FALSE(parse_tasks_per_node(text)) << text;
  }
}

TEST(Deal, GivesKnownOrders) {
  using Nodes = std::vector<NodeIndex>;
  EXPECT_EQ(deal_block({2, 1, 3}), Nodes({0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(deal_cyclic({2, 1, 3}), Nodes({0, 1, 2, 0, 2, 2}));
  EXPECT_EQ(deal_plane({4, 3}, 2), Nodes({0, 0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(deal_plane({1, 1}, 0), Nodes());  // no plane, no tasks, no endless loop
}

// The definitions, taken literally and slowly.
void check_against_definitions(const Layout& layout, const std::vector<std::string>& host_of_rank) {
  ASSERT_EQ(layout.size(), host_of_rank.size());
  std::map<std::string, std::vector<Rank>> ranks_of;
  std::vector<std::string> by_lowest_rank;
  for (Rank rank = 0; rank < host_of_rank.size(); ++rank) {
    if (ranks_of[host_of_rank[rank]].empty()) by_lowest_rank.push_back(host_of_rank[rank]);
    ranks_of[host_of_rank[rank]].push_back(rank);
  }
  for (Rank rank = 0; rank < host_of_rank.size(); ++rank) {
    const auto& place = layout.place(rank);
    const auto& host = host_of_rank[rank];
    const auto& here = ranks_of[host];
    EXPECT_EQ(layout.host_of(rank), host);
    EXPECT_EQ(place.local_size, here.size());
    EXPECT_EQ(here[place.local_rank], rank);
    EXPECT_EQ(by_lowest_rank[place.node_rank], host);
    EXPECT_EQ(layout.host_by_node_rank(place.node_rank), host);
    std::vector<std::string> with_my_local_rank;
    for (const auto& other : by_lowest_rank) {
      if (ranks_of[other].size() > place.local_rank) with_my_local_rank.push_back(other);
    }
    EXPECT_EQ(place.cross_size, with_my_local_rank.size());
    EXPECT_EQ(with_my_local_rank[place.cross_rank], host);
    EXPECT_EQ(layout.ranks_on(place.node), here);
  }
}

TEST(Layout, RandomLayoutsFollowTheDefinitions) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 500; ++round) {
    const auto node_count = 1 + random() % 9;
    std::vector<std::uint32_t> counts(node_count);
    std::vector<NodeIndex> map;
    for (NodeIndex node = 0; node < node_count; ++node) {
      counts[node] = static_cast<std::uint32_t>(1 + random() % 5);
      map.insert(map.end(), counts[node], node);
    }
    if (round % 2 == 0) std::shuffle(map.begin(), map.end(), random);
    const auto layout = succeeded(Layout::make({component("n[01-0" + std::to_string(node_count) + "]", counts, map)}));
    std::vector<std::string> hosts;
    for (const auto node : map) hosts.push_back("n0" + std::to_string(node + 1));
    check_against_definitions(*layout, hosts);
  }
}

TEST(Layout, ComponentsMayShareAHost) {
  const auto layout = succeeded(Layout::make({component("b,a", {1, 2}, {1, 0, 1}), component("c,a", {1, 1}, {0, 1})}));
  check_against_definitions(*layout, {"a", "b", "a", "c", "a"});
  EXPECT_EQ(layout->node_count(), 3U);
}

TEST(Layout, RefusesContradictions) {
  EXPECT_EQ(Layout::make({component("a,b", {1}, {0})}).error().code, ErrorCode::kDisagreement);
  EXPECT_EQ(Layout::make({component("a", {1}, {1})}).error().code, ErrorCode::kInvalid);
}

TEST(Layout, TwelveThousandNodesTakeNoTime) {
  const std::vector<std::uint32_t> counts(12500, 8);
  const auto layout = succeeded(Layout::make({component("node[00001-12500]", counts, deal_cyclic(counts))}));
  EXPECT_EQ(layout->size(), 100000U);
  EXPECT_EQ(layout->place(99999).node_rank, 12499U);
  EXPECT_EQ(layout->place(99999).cross_size, 12500U);
}

TEST(RankNames, HaveTheHostAndTheLocalRank) {
  EXPECT_EQ(describe_rank(block_layout(4, 4), 5), "rank 5 (node002, local rank 1)");
  EXPECT_EQ(missing_ranks(block_layout(4, 4), {5}), "missing: rank 5 (node002, local rank 1)");
}

TEST(RankNames, NameAWholeNodeOnce) {
  const auto layout = block_layout(4, 4);
  EXPECT_EQ(missing_ranks(layout, {8, 9, 10, 11, 13}),
            "missing: ranks 8-11 (all of node003), rank 13 (node004, local rank 1)");
  EXPECT_EQ(missing_ranks(layout, {8, 9, 10}),
            "missing: rank 8 (node003, local rank 0), rank 9 (node003, local rank 1), rank 10 (node003, local rank 2)");
  // The only rank of a node is not a range.
  EXPECT_EQ(missing_ranks(block_layout(3, 1), {1}), "missing: rank 1 (node002, local rank 0)");
}

TEST(RankNames, DoNotTakeScatteredRanksForANode) {
  const std::vector<std::uint32_t> counts = {2, 2};
  const auto cyclic = *Layout::make({{*parse_host_list("node[001-002]"), counts, deal_cyclic(counts)}});
  EXPECT_EQ(missing_ranks(cyclic, {0, 2}), "missing: rank 0 (node001, local rank 0), rank 2 (node001, local rank 1)");
}

TEST(RankNames, AreCutAtALimit) {
  const auto layout = block_layout(100, 2);
  std::vector<Rank> odd;
  for (Rank rank = 1; rank < 200; rank += 2) odd.push_back(rank);
  const auto text = missing_ranks(layout, odd);
  EXPECT_LT(text.size(), 400U);
  EXPECT_NE(text.find("rank 15 (node008, local rank 1) and 92 more"), std::string::npos) << text;
}

TEST(RankNames, NameAllRanksOnce) {
  std::vector<Rank> all(16);
  std::iota(all.begin(), all.end(), Rank{0});
  EXPECT_EQ(missing_ranks(block_layout(4, 4), all), "missing: all 16 ranks");
}

std::string write(const Counts& counts, const std::vector<NodeIndex>& map) {
  return *write_layout(12, 3, {{12, "n[1-9]", counts, map}});
}

TEST(LayoutText, NamesTheUsualOrders) {
  EXPECT_EQ(write({2, 2}, deal_block({2, 2})), "12.3/block");
  EXPECT_EQ(write({2, 2}, deal_cyclic({2, 2})), "12.3/cyclic");
  EXPECT_EQ(write({4, 3}, deal_plane({4, 3}, 2)), "12.3/plane:2");
  EXPECT_EQ(write({1, 1, 2}, {2, 0, 1, 2}), "12.3/map:2,0,1,2");
  EXPECT_EQ(write({3, 1}, {1, 0, 0, 0}), "12.3/map:1,0x3");
}

TEST(LayoutText, ComponentsCarryTheirOwn) {
  const auto text = write_layout(43, 0, {{43, "n[1-2]", {2, 2}, deal_block({2, 2})}, {44, "n3", {1}, {0}}});
  EXPECT_EQ(*text, "43.0/43;n[1-2];2x2;block/44;n3;1;block");
  const auto read = succeeded(read_layout(*text, {}));
  EXPECT_EQ(read->components[1].job, 44U);
  EXPECT_EQ(read->components[1].nodes.at(0), "n3");
}

TEST(LayoutText, CarriesTheAddressOfMasterAddr) {
  const std::vector<ComponentText> components{{43, "n1", {1}, {0}}, {44, "n2", {1}, {0}}};
  const auto text = *write_layout(43, 0, components, {"10.0.0.1", {}, {}});
  EXPECT_EQ(text, "43.0/43;n1;1;block/44;n2;1;block@10.0.0.1");
  const auto read = succeeded(read_layout(text, {}));
  EXPECT_EQ(read->meeting.ours, "10.0.0.1");
}

TEST(LayoutText, CarriesTheAddressesThatAreKnown) {
  const std::vector<ComponentText> components{{43, "n1", {1}, {0}}};
  const std::vector<std::pair<MeetingAddresses, std::string>> cases{
      {{}, "43.0/block"},
      {{"10.0.0.1", "fd00::7", {}}, "43.0/block@10.0.0.1,fd00::7"},
      {{{}, "10.0.0.2", {}}, "43.0/block@,10.0.0.2"},
      {{{}, {}, "n1-mgmt"}, "43.0/block@,,n1-mgmt"},
  };
  for (const auto& [meeting, expected] : cases) {
    EXPECT_EQ(*write_layout(43, 0, components, meeting), expected);
    const auto read = read_layout(expected, component("n1", {1}, {}));
    ASSERT_TRUE(read) << expected;
    EXPECT_EQ(read->meeting, meeting);
  }
  for (const auto* wrong : {"@x", "@10.0.0.1,x", "@,,a b", "@,,,"}) {
    EXPECT_FALSE(read_layout(cat({"43.0/block", wrong}), component("n1", {1}, {}))) << wrong;
  }
}

TEST(LayoutText, IsReadAsItWasWritten) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    Counts counts(1 + random() % 7);
    for (auto& count : counts) count = static_cast<std::uint32_t>(1 + random() % 4);
    auto map = deal_plane(counts, static_cast<std::uint32_t>(1 + random() % 4));
    if (round % 3 == 0) std::shuffle(map.begin(), map.end(), random);
    const auto whole = component("n[1-" + std::to_string(counts.size()) + "]", counts, {});
    const auto read = succeeded(read_layout(write(counts, map), whole));
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
  const auto whole = component("n[1-2]", {2, 2}, {});
  EXPECT_FALSE(read_layout("", whole));
  for (const auto text :
       split("12.3 12.3/ 12.3/diagonal 12.3/plane:0 12.3/plane: 12.3/map: 12.3/map:0 12.3/map:0,0,0,1 "
             "12.3/map:0,9,1,1 12.3/map:0x2,1x99999999 12.3/block;block 12.3/1;2;3;4;5 "
             "12.3/1;n1;1x9999999;block 12.3/x;n1;1;block 12.3/0;n1;1;block 12.3/-1/block 12.3/block/13;n2;1;block",
             ' ')) {
    EXPECT_FALSE(read_layout(text, whole)) << text;
  }
}

TEST(LayoutText, HugeNumbersAreRefusedBeforeTheyTakeMemory) {
  const auto whole = component("n[1-2]", {2, 2}, {});
  std::string many = "12.0/";
  for (int i = 0; i < 129; ++i) many += (i == 0 ? "" : "/") + std::string("1;n1;1;block");
  for (const auto& text : {many, std::string("12.0/1;a[1-1048576];1x1048576;block"),
                           std::string("12.0/1;a[1-40000];1x40000;block/1;b[1-40000];1x40000;block"),
                           std::string("12.0/1;a;1048577;block"), std::string("12.0/1;a[1-2];0,1;block"),
                           "12.0/map:" + std::string(60000, '0')}) {
    EXPECT_FALSE(read_layout(text, whole)) << text.substr(0, 60);
  }
}

TEST(LayoutText, ALayoutTooLongForAVariableIsAnError) {
  std::vector<NodeIndex> map = deal_block(Counts(20000, 2));
  std::mt19937 random(1);
  std::shuffle(map.begin(), map.end(), random);
  EXPECT_EQ(error_of(write_layout(1, 0, {{1, "n[1-20000]", Counts(20000, 2), map}})).code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace bootstrap
