// Layouts compared with a slow, obvious oracle; Slurm's distributions of tasks; and the names of ranks. Host lists:
// what each form means, and what is refused and why.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/rank_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/host_list.h"
#include "known_layout.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

LayoutComponent component(const std::string& nodes, std::vector<std::uint32_t> counts, std::vector<NodeIndex> map) {
  return {*parse_host_list(nodes), std::move(counts), std::move(map)};
}

TEST(TasksPerNode, ReadsSlurmsForm) {
  using Counts = std::vector<std::uint32_t>;
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

TEST(Deal, KnownOrders) {
  using Nodes = std::vector<NodeIndex>;
  EXPECT_EQ(deal_block({2, 1, 3}), Nodes({0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(deal_cyclic({2, 1, 3}), Nodes({0, 1, 2, 0, 2, 2}));
  EXPECT_EQ(deal_plane({4, 3}, 2), Nodes({0, 0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(deal_plane({1, 1}, 0), Nodes());  // no plane, no tasks, no endless loop
}

// The definitions, taken literally, at any cost.
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

TEST(RankNames, NamesARankWithItsHostAndLocalRank) {
  EXPECT_EQ(describe_rank(block_layout(4, 4), 5), "rank 5 (node002, local rank 1)");
  EXPECT_EQ(missing_ranks(block_layout(4, 4), {5}), "missing: rank 5 (node002, local rank 1)");
}

TEST(RankNames, NamesAWholeNodeOnce) {
  const auto layout = block_layout(4, 4);
  EXPECT_EQ(missing_ranks(layout, {8, 9, 10, 11, 13}),
            "missing: ranks 8-11 (all of node003), rank 13 (node004, local rank 1)");
  EXPECT_EQ(missing_ranks(layout, {8, 9, 10}),
            "missing: rank 8 (node003, local rank 0), rank 9 (node003, local rank 1), rank 10 (node003, local rank 2)");
  // One rank of a node of one is no range.
  EXPECT_EQ(missing_ranks(block_layout(3, 1), {1}), "missing: rank 1 (node002, local rank 0)");
}

TEST(RankNames, DoesNotTakeScatteredRanksForANode) {
  const std::vector<std::uint32_t> counts = {2, 2};
  const auto cyclic = *Layout::make({{*parse_host_list("node[001-002]"), counts, deal_cyclic(counts)}});
  EXPECT_EQ(missing_ranks(cyclic, {0, 2}), "missing: rank 0 (node001, local rank 0), rank 2 (node001, local rank 1)");
}

TEST(RankNames, HasAnEnd) {
  const auto layout = block_layout(100, 2);
  std::vector<Rank> odd;
  for (Rank rank = 1; rank < 200; rank += 2) odd.push_back(rank);
  const auto text = missing_ranks(layout, odd);
  EXPECT_LT(text.size(), 400U);
  EXPECT_NE(text.find("rank 15 (node008, local rank 1) and 92 more"), std::string::npos) << text;
}

TEST(RankNames, NamesAllRanksOnce) {
  std::vector<Rank> all(16);
  std::iota(all.begin(), all.end(), Rank{0});
  EXPECT_EQ(missing_ranks(block_layout(4, 4), all), "missing: all 16 ranks");
}

using Names = std::vector<std::string>;

// Every expectation below without the mark "23.11" is what `scontrol show hostnames` of Slurm 22.05.8 prints.
struct Accepted {
  std::string_view text;
  Names names;
};

const Accepted kAccepted[] = {
    {"", {}},
    {",, \t,", {}},
    {"login", {"login"}},
    {"a,a", {"a", "a"}},
    {"c,a,b", {"c", "a", "b"}},
    {"gpu-1.rack_2.example.org", {"gpu-1.rack_2.example.org"}},
    {"192.0.2.1,1-2,007", {"192.0.2.1", "1-2", "007"}},
    {" a, b\tc,,d, ", {"a", "b", "c", "d"}},
    {"n[7]", {"n7"}},
    {"n[5-5]", {"n5"}},
    {"n[1-3]", {"n1", "n2", "n3"}},
    {"n[3,1-2,2]", {"n3", "n1", "n2", "n2"}},
    {"[08-10]", {"08", "09", "10"}},
    {"n [1-2]", {"n", "1", "2"}},
    {"n[001-003,7],login", {"n001", "n002", "n003", "n7", "login"}},
    {"n[9-10,011]", {"n9", "n10", "n011"}},
    {"n[8-010]", {"n8", "n9", "n10"}},
    {"n[98-101]", {"n98", "n99", "n100", "n101"}},
    {"n[098-101]", {"n098", "n099", "n100", "n101"}},
    {"n[0,00,000]", {"n0", "n00", "n000"}},
    {"n[00000000000000000000001]", {"n00000000000000000000001"}},
    {"n[4294967295-4294967297]", {"n4294967295", "n4294967296", "n4294967297"}},
    {"n[18446744073709551615]", {"n18446744073709551615"}},
    {"rack[1-2]n[3-4]", {"rack1n3", "rack1n4", "rack2n3", "rack2n4"}},
    {"r[9,010]n[09-10]", {"r9n09", "r9n10", "r010n09", "r010n10"}},
    {"n[1-2][3-4]", {"n13", "n14", "n23", "n24"}},
    {"a[1-2]b[1-2]c[1-2]", {"a1b1c1", "a1b1c2", "a2b1c1", "a2b1c2", "a1b2c1", "a1b2c2", "a2b2c1", "a2b2c2"}},
    {"n[1-2]-ib", {"n1-ib", "n2-ib"}},                                         // 23.11
    {"n[9-10].x,m[1]2", {"n9.x", "n10.x", "m12"}},                             // 23.11
    {"r[1-2]n[3-4]s,t", {"r1n3s", "r1n4s", "r2n3s", "r2n4s", "t"}},            // 23.11
    {"n123456789012345678901234567890", {"n123456789012345678901234567890"}},  // Slurm: n018446744073709551615
};

TEST(HostListParse, MeansWhatSlurmMeans) {
  for (const auto& [text, names] : kAccepted) {
    EXPECT_EQ(*succeeded(parse_host_list(text)), names) << text;
  }
}

struct Refused {
  std::string_view text;
  std::string_view reason;
};

const Refused kRefused[] = {
    {"n[]", R"("" at character 3 is not a number or a range of numbers)"},
    {"n[1,]", R"("" at character 5 is not a number or a range of numbers)"},
    {"n[1,,2]", R"("" at character 5 is not a number or a range of numbers)"},
    {"n[a]", R"("a" at character 3 is not a number or a range of numbers)"},
    {"n[1-]", R"("1-" at character 3 is not a number or a range of numbers)"},
    {"n[-3]", R"("-3" at character 3 is not a number or a range of numbers)"},
    {"n[1-2-3]", R"("1-2-3" at character 3 is not a number or a range of numbers)"},
    {"n[1--2]", R"("1--2" at character 3 is not a number or a range of numbers)"},
    {"n[+1]", R"("+1" at character 3 is not a number or a range of numbers)"},
    {"n[0x10]", R"("0x10" at character 3 is not a number or a range of numbers)"},
    {"n[1, 2]", R"(" 2" at character 5 is not a number or a range of numbers)"},
    {"n[1][1][1][1][1][1][1][1][1]", R"("n[1][1][1][1][1][1][1][1]" at character 1 has more than 8 brackets)"},
    {"n[1 ]", R"("1 " at character 3 is not a number or a range of numbers)"},
    {"n[[1]]", R"("[1" at character 3 is not a number or a range of numbers)"},
    {"a,n[5-3]", R"("5-3" at character 5 counts down)"},
    {"n[010-9]", R"("010-9" at character 3 counts down)"},
    {"n[18446744073709551616]", R"("18446744073709551616" at character 3 holds a number of more than 64 bits)"},
    {"n[1", R"("[1" at character 2 is not closed by ']')"},
    {"n[", R"("[" at character 2 is not closed by ']')"},
    {"n[1-", R"("[1-" at character 2 is not closed by ']')"},
    {"n[1,2-3", R"(",2-3" at character 4 is not closed by ']')"},
    {"n1]", R"("]" at character 3 closes a bracket that is not open)"},
    {"n[1]]", R"("]" at character 5 closes a bracket that is not open)"},
    {"(null)", R"("(" at character 1 cannot be part of a host name)"},
    {"a,b\x01", R"("\x01" at character 4 cannot be part of a host name)"},
    {"a\nb", R"("\x0a" at character 2 cannot be part of a host name)"},
    {"a\r", R"("\x0d" at character 2 cannot be part of a host name)"},
    {std::string_view("a\0b", 3), R"("\x00" at character 2 cannot be part of a host name)"},
    {"n\xc3\xa9", R"("\xc3" at character 2 cannot be part of a host name)"},
};

TEST(HostListParse, RefusesMalformedTextAndNamesThePlace) {
  for (const auto& [text, reason] : kRefused) {
    const auto list = parse_host_list(text);
    ASSERT_FALSE(list) << text;
    EXPECT_EQ(list.error().code, ErrorCode::kInvalid) << text;
    EXPECT_EQ(list.error().message, "cannot read the host list: " + std::string(reason));
  }
}

TEST(HostListParse, TakesExactlyTheMostHosts) {
  for (const auto* const text : {"n[1-65536]", "a,n[2-65536]", "a[1-256]b[1-256]", "n[1-65535],a"}) {
    EXPECT_EQ(succeeded(parse_host_list(text))->size(), kMaxNodes) << text;
  }
  for (const auto* const text :
       {"n[1-65537]", "a,n[1-65536]", "n[1-65536],a", "n[1-65536,5]", "a[1-256]b[1-256],c", "a[1-256]b[1-257]",
        "a[1-65536]b[1-65536]c[1-65536]d[1-65536]", "n[0-18446744073709551615]", "n[1-18446744073709551615,0]"}) {
    const auto list = parse_host_list(text);
    ASSERT_FALSE(list) << text;
    EXPECT_EQ(list.error().code, ErrorCode::kLimit) << list.error().message;
  }
  EXPECT_EQ(parse_host_list("n[1-3]", 3)->size(), 3U);
  EXPECT_EQ(parse_host_list("n[1-4]", 3).error().message,
            "cannot read the host list: \"n[1-4\" at character 1 names more than 3 hosts");
}

TEST(HostListParse, TakesExactlyTheLongestName) {
  const auto longest = std::string(kMaxNodeName, 'a');
  const auto almost = longest.substr(2);
  const auto zeros = std::string(kMaxNodeName, '0');
  for (const auto& text : {longest, almost + "[1-99]", "[98-99]" + almost, zeros, "[" + zeros + "]"}) {
    EXPECT_EQ(succeeded(parse_host_list(text))->back().size(), kMaxNodeName);
  }
  for (const auto& text :
       {longest + 'a', almost + "[1-100]", "[99-100]" + almost, "[0" + zeros + "]", longest + "[1]"}) {
    const auto list = parse_host_list("b," + text);
    ASSERT_FALSE(list) << text;
    EXPECT_EQ(list.error().code, ErrorCode::kLimit);
    EXPECT_NE(list.error().message.find("at character 3 begins a name of more than 255"), std::string::npos)
        << list.error().message;
  }
}

TEST(HostListParse, ReadsEachPieceOfAList) {
  const std::string_view text = " a,n[08-10,7]x[1-2]-ib,c[18446744073709551615] ,d";
  for (std::size_t begin = 0; begin <= text.size(); ++begin) {
    for (std::size_t size = 0; begin + size <= text.size(); ++size) (void)parse_host_list(text.substr(begin, size));
  }
}

}  // namespace
}  // namespace bootstrap
