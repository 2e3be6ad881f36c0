// What srun hands to the nodes: what is written is read back the same, short where it can be, and garbage is refused.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/srun_messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/util/text.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

using Counts = std::vector<std::uint32_t>;

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
  const auto read = succeeded(read_layout(*text, *parse_host_list("n[1-3]"), {2, 2, 1}));
  EXPECT_EQ(read->component_jobs, Counts({43, 44}));
  EXPECT_EQ(read->components[1].nodes.at(0), "n3");
}

TEST(LayoutText, CarriesTheAddressOfMasterAddr) {
  const std::vector<ComponentText> components{{43, "n1", {1}, {0}}, {44, "n2", {1}, {0}}};
  const auto text = *write_layout(43, 0, components, {"10.0.0.1", {}, {}});
  EXPECT_EQ(text, "43.0/43;n1;1;block/44;n2;1;block@10.0.0.1");
  const auto read = succeeded(read_layout(text, *parse_host_list("n[1-2]"), {1, 1}));
  EXPECT_EQ(read->meeting.ours, "10.0.0.1");
  EXPECT_EQ(read->component_jobs, Counts({43, 44}));
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
    const auto read = read_layout(expected, {"n1"}, {1});
    ASSERT_TRUE(read) << expected;
    EXPECT_EQ(read->meeting, meeting);
  }
  for (const auto* wrong : {"@x", "@10.0.0.1,x", "@,,a b", "@,,,"}) {
    EXPECT_FALSE(read_layout(cat({"43.0/block", wrong}), {"n1"}, {1})) << wrong;
  }
}

TEST(LayoutText, ComesBackTheSame) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    Counts counts(1 + random() % 7);
    for (auto& count : counts) count = static_cast<std::uint32_t>(1 + random() % 4);
    auto map = deal_plane(counts, static_cast<std::uint32_t>(1 + random() % 4));
    if (round % 3 == 0) std::shuffle(map.begin(), map.end(), random);
    const auto read = succeeded(
        read_layout(write(counts, map), *parse_host_list("n[1-" + std::to_string(counts.size()) + "]"), counts));
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
  EXPECT_FALSE(read_layout("", *parse_host_list("n[1-2]"), {2, 2}));
  for (const auto text :
       split("block 12/block 12.3 12.3/ 12.3/diagonal 12.3/plane:0 12.3/plane: 12.3/map: 12.3/map:0 12.3/map:0,0,0,1 "
             "12.3/map:0,9,1,1 12.3/map:0x2,1x99999999 x.3/block 12.x/block 12.3/block;block 12.3/1;2;3;4;5 "
             "12.3/1;n1;1x9999999;block 12.3/x;n1;1;block 12.3/-1/block 12.3/block/13;n2;1;block",
             ' ')) {
    EXPECT_FALSE(read_layout(text, *parse_host_list("n[1-2]"), {2, 2})) << text;
  }
}

TEST(LayoutText, LargeClaimsAreRefusedBeforeTheyCost) {
  const auto nodes = *parse_host_list("n[1-2]");
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
  EXPECT_EQ(error_of(write_layout(1, 0, {{1, "n[1-20000]", Counts(20000, 2), map}})).code, ErrorCode::kLimit);
}

TEST(Decision, IsReadAsItWasWritten) {
  const StepId id{.job = 12, .step = 3};
  for (const auto set_up : {SetUp::kNothing, SetUp::kTorchrun, SetUp::kWorld, SetUp::kAllSettings}) {
    for (const auto asked : {Asked::kUnasked, Asked::kWeakly, Asked::kStrongly}) {
      const Decision decision{.set_up = set_up,
                              .asked = asked,
                              .is_verbose = true,
                              .is_observed = false,
                              .salt = 0xfedcba9876543210U,
                              .unusable_master = "nowhere.example",
                              .endpoint = {"port=auto", "master_addr=%h-ib0"},
                              .reason = "a; b; c"};
      EXPECT_EQ(read_decision(write_decision(id, decision), id), decision);
      EXPECT_EQ(asks_strongly(write_decision(id, decision)), asked == Asked::kStrongly);
      EXPECT_EQ(read_set_up(cat({write_set_up(set_up), " option:port=2000"})), set_up);
    }
  }
  Decision observed;
  observed.is_observed = true;
  EXPECT_EQ(read_decision(write_decision(id, observed), id), observed);
}

// The reason goes into slurmd's log and to the user's terminal.
TEST(Decision, HoldsPrintableTextAlone) {
  const StepId id{.job = 12, .step = 3};
  Decision decision;
  decision.reason = "\xc3\xa9.py is\na Python script";
  const auto read = read_decision(write_decision(id, decision), id);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->reason, "??.py is?a Python script");
  decision.reason = std::string(5000, 'x');
  EXPECT_TRUE(read_decision(write_decision(id, decision), id));
  for (const auto* text : {"5\t12.3\t0\t0\t1\t0\t\t0\t\ta\nb\t", "5\t12.3\t0\t0\t1\t0\t\t0\t\t\x1b[31m\t",
                           "5\t12.3\t2\t0\t0\t0\ta b\t0\t\t\t"}) {
    EXPECT_FALSE(read_decision(text, id)) << text;
  }
  EXPECT_FALSE(read_decision("5\t12.3\t0\t0\t1\t0\t\t0\t\t" + std::string(5000, 'x') + "\t", id));
}

TEST(Decision, OfAnotherStepOrVersionIsNone) {
  const auto text = write_decision({.job = 12, .step = 3}, Decision{});
  EXPECT_FALSE(read_decision(text, {.job = 12, .step = 4}));
  EXPECT_FALSE(read_decision(text, {.job = 13, .step = 3}));
  const auto of_async = write_decision({.job = 12, .step = kPendingStep}, {});
  EXPECT_TRUE(read_decision(of_async, {.job = 12, .step = 3}));
  EXPECT_FALSE(read_decision(of_async, {.job = 13, .step = 3}));
  EXPECT_FALSE(read_decision("1" + text.substr(1), {.job = 12, .step = 3}));
  for (const auto* other :
       {"", "\t", "5\t12.3\t2\t0\t0\tzz\t\t0\t\t\t", "5\t12.3\t9\t0\t0\t0\t\t0\t\t\t", "5\t12.3\t2"}) {
    EXPECT_FALSE(read_decision(other, {.job = 12, .step = 3})) << other;
    EXPECT_FALSE(asks_strongly(other)) << other;
  }
  // A later version may add fields behind these.
  EXPECT_TRUE(asks_strongly("5\t12.3\tnew\t2\tmore", "12.3"));
  EXPECT_FALSE(asks_strongly("5\t12.3\tnew\t2\tmore", "12.4"));
  EXPECT_FALSE(asks_strongly("5\t12.3\tnew\t1\tmore", "12.3"));
  EXPECT_EQ(read_set_up(""), SetUp::kAllSettings);
  EXPECT_EQ(read_set_up("option:port=2000"), SetUp::kAllSettings);
}

}  // namespace
}  // namespace bootstrap
