// The nodes without a confirmation that srun names, and when; and the messages between nodes and srun.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/receipts.h"

#include <gtest/gtest.h>

#include "core/step/failure.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

using Kind = NodeReport::Kind;

constexpr std::uint64_t kToken = 0x1234;

// Four nodes with two tasks each.
std::vector<ComponentText> four_nodes() {
  return {
      {.job = 12, .nodes = "node[001-004]", .tasks_per_node = {2, 2, 2, 2}, .node_of_rank = {0, 0, 1, 1, 2, 2, 3, 3}}};
}

NodeReport report(Kind kind, const std::string& host, std::uint32_t slurmstepd = 7, std::uint32_t tasks = 2) {
  return {.kind = kind, .host = host, .job = 12, .slurmstepd = slurmstepd, .tasks = tasks, .reason = {}};
}

bool all_run(Rank /*rank*/) { return true; }

// All lines from the time `from` on until no look remains, while the tasks of `has_started` run.
std::vector<std::string> say(Receipts& receipts, const Receipts::HasStarted& has_started = all_run) {
  std::vector<std::string> said;
  for (int looks = 0; looks < 1000; ++looks) {
    const auto at = receipts.next_look();
    if (!at) break;
    for (auto& sentence : receipts.look(*at, has_started)) said.push_back(sentence);
    (void)receipts.note_silence(*at);
  }
  return said;
}

TEST(Receipts, DoNotNameNodesThatHaveConfirmed) {
  Receipts receipts(four_nodes());
  for (const auto* host : {"node001", "node002", "node003", "node004"}) {
    receipts.add(report(Kind::kHello, host), true, 10);
    receipts.add(report(Kind::kPassed, host), true, 20);
    receipts.add(report(Kind::kPassed, host), true, 21);  // each is sent twice
  }
  EXPECT_EQ(receipts.next_look(), std::nullopt);
}

TEST(Receipts, NameNodesThatAreSilentWhileTheirTasksRun) {
  Receipts receipts(four_nodes());
  receipts.add(report(Kind::kPassed, "node001"), true, 20);
  receipts.add(report(Kind::kPassed, "node002"), true, 20);
  const auto said = only(say(receipts));
  EXPECT_EQ(said.find("node[003-004] have not confirmed that their tasks got their ranks: the plugin's line is "), 0U)
      << said;
  EXPECT_NE(said.find("slurm-bootstrap there is older than 1.1; run there: slurm-bootstrap check --local"),
            std::string::npos);
}

TEST(Receipts, NameSilentNodesOfAShortStepAtItsEnd) {
  Receipts receipts(four_nodes());
  receipts.add(report(Kind::kPassed, "node001"), true, 20);
  receipts.add(report(Kind::kPassed, "node002"), true, 20);
  receipts.add(report(Kind::kHello, "node003"), true, 20);
  const auto started = [](Rank rank) { return rank < 8; };
  EXPECT_TRUE(receipts.look(500, started, false).empty());
  const auto said = only(receipts.look(500, started, true));
  EXPECT_EQ(said.find("node004 has not confirmed that its tasks got their ranks: the plugin's line is "), 0U) << said;
  EXPECT_TRUE(receipts.look(501, started, true).empty()) << "once";
}

// A node in its Prolog has not started a task, and a single host does not show whether UDP works.
TEST(Receipts, DoNotNameANodeAtTheEndThatMayHaveAnotherReason) {
  Receipts receipts(four_nodes());
  receipts.add(report(Kind::kPassed, "node001"), true, 20);
  const auto first_node = [](Rank rank) { return rank < 2; };
  EXPECT_TRUE(receipts.look(500, first_node, true).empty());
  Receipts own(four_nodes());
  own.add(report(Kind::kPassed, "node001"), false, 20);
  EXPECT_TRUE(own.look(500, all_run, true).empty());
}

TEST(Receipts, WaitForANodeWhosePrologRuns) {
  Receipts receipts(four_nodes());
  for (const auto* host : {"node001", "node002", "node003"}) receipts.add(report(Kind::kPassed, host), true, 20);
  EXPECT_TRUE(say(receipts, [](Rank rank) { return rank < 6; }).empty());
}

// If UDP from other hosts is blocked, srun receives only reports of its own node.
TEST(Receipts, NameNoNodeIfNoOtherHostReports) {
  Receipts receipts(four_nodes());
  receipts.add(report(Kind::kPassed, "node001"), false, 20);
  EXPECT_TRUE(say(receipts).empty());
  Receipts noted(four_nodes());
  noted.add(report(Kind::kPassed, "node001"), false, 20);
  EXPECT_EQ(noted.note_silence(59'000), "");
  EXPECT_NE(noted.note_silence(60'000).find("UDP from the nodes to srun may be blocked"), std::string::npos);
  EXPECT_EQ(noted.note_silence(61'000), "") << "once";
}

TEST(Receipts, NameNoNodeIfAllAreOlder) {
  Receipts receipts(four_nodes());
  EXPECT_TRUE(say(receipts).empty());
}

// One node may take long to import a container's image.
TEST(Receipts, GiveANodeThatSentHelloAMinute) {
  const auto said_at = [](std::uint64_t passed_at) {
    Receipts receipts(four_nodes());
    for (const auto* host : {"node001", "node002", "node003"}) receipts.add(report(Kind::kPassed, host), true, 20);
    receipts.add(report(Kind::kHello, "node004"), true, 20);
    std::vector<std::string> said;
    for (std::uint64_t now = 0; now < 100'000; now += 500) {
      if (now >= passed_at) receipts.add(report(Kind::kPassed, "node004"), true, now);
      for (auto& sentence : receipts.look(now, all_run)) said.push_back(sentence);
    }
    return said;
  };
  EXPECT_TRUE(said_at(55'000).empty());
  const auto late = only(said_at(90'000));
  EXPECT_EQ(late.find("node004 has not confirmed that all of its tasks got their ranks: another plugin started or "
                      "ended a task before slurm-bootstrap's turn"),
            0U)
      << late;
}

TEST(Receipts, NameAllNodesWhoseTasksEndedWithoutRanksInOneLine) {
  Receipts receipts(four_nodes());
  for (const auto* host : {"node001", "node002"}) receipts.add(report(Kind::kPassed, host), true, 20);
  for (const auto* host : {"node003", "node004"}) receipts.add(report(Kind::kHello, host), true, 20);
  receipts.add(report(Kind::kNeverSet, "node003"), true, 9'000);
  EXPECT_TRUE(receipts.look(9'010, all_run).empty());
  receipts.add(report(Kind::kNeverSet, "node004"), true, 9'020);
  ASSERT_EQ(receipts.next_look(), 9'500U);
  const auto said = only(receipts.look(9'500, all_run));
  EXPECT_EQ(said.find("node[003-004] have not confirmed that all of their tasks got their ranks"), 0U) << said;
}

TEST(Receipts, OfTwoComponentsOnOneNodeBothMustConfirm) {
  Receipts receipts({{.job = 12, .nodes = "node001", .tasks_per_node = {2}, .node_of_rank = {0, 0}},
                     {.job = 13, .nodes = "node001", .tasks_per_node = {1}, .node_of_rank = {0}}});
  receipts.add(report(Kind::kPassed, "node001"), true, 20);
  EXPECT_TRUE(receipts.next_look());
  auto second = report(Kind::kPassed, "node001", 8, 1);
  second.job = 13;
  receipts.add(second, true, 20);
  EXPECT_FALSE(receipts.next_look());
}

TEST(NodeReport, IsReadAsItWasWritten) {
  const NodeReport refused{.kind = Kind::kRefused,
                           .host = "node001",
                           .job = 12,
                           .slurmstepd = 4711,
                           .tasks = 2,
                           .reason = "3 tasks share\t2 GPUs"};
  const auto text = write_report(refused, kToken);
  EXPECT_LT(text.size(), kMaxReportText);
  const auto read = read_report<NodeReport>(text, kToken);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->host + std::to_string(read->tasks), "node0012");
  EXPECT_FALSE(read_report<NodeReport>(text, kToken + 1));
  EXPECT_FALSE(read_report<NodeReport>(text + std::string(kMaxReportText, 'x'), kToken));
}

// srun of 1.0.0 reads only failures, and drops other messages.
TEST(NodeReport, IsNotReadAsAFailureNorAFailureAsAReport) {
  EXPECT_FALSE(read_report<Failure>(write_report(report(Kind::kPassed, "node001"), kToken), kToken));
  EXPECT_FALSE(
      read_report<NodeReport>(write_report(Failure{.rank = 1, .host = "node001", .wait_status = 256}, kToken), kToken));
}

}  // namespace
}  // namespace bootstrap
