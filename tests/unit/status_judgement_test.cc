// Which ranks `status` names as out of step, and which it does not.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "core/util/text.h"
#include "tools/status/judgement.h"

namespace bootstrap {
namespace {

constexpr std::size_t kRanks = 8;

// Eight ranks of PyTorch on two nodes that wait for each other in a collective.
StepState healthy() {
  StepState step;
  for (std::uint64_t i = 0; i < kRanks; ++i) {
    auto& rank = step.ranks.emplace_back();
    rank.rank = rank.task = i;
    rank.local_rank = i % 4;
    rank.node = i < 4 ? "node001" : "node002";
    rank.node_tasks = i < 4 ? "0,1,2,3" : "4,5,6,7";
    rank.pid = 100 + i;
    rank.program = rank.chain = "python3";
    rank.state = "S";
    rank.is_still = true;
    rank.waits = "futex";
    rank.framework = "PyTorch";
    rank.meetings = {"MASTER_PORT 29500"};
    rank.links = {std::to_string(40000 + i) + ":29500"};
    if (i == 0) rank.listens = {29500};
  }
  step.nodes.resize(2);
  step.nodes[0].node = "node001";
  step.nodes[1].node = "node002";
  return step;
}

std::string first_line(const StepState& step) { return judge(step, kRanks).findings.front().sentence; }

using Change = void (*)(RankState&);

std::string with(const std::vector<std::size_t>& numbers, Change change) {
  auto step = healthy();
  for (const auto number : numbers) change(step.ranks[number]);
  return first_line(step);
}

TEST(StatusJudgement, RanksAreOutOfStep) {
  struct Case {
    Change change;
    std::string one;
    std::string several = {};  // empty: not tried
  };
  const auto maybe = [](const char* who, const char* what) {
    return cat({what, "; ", who, " may be slow, in a checkpoint, or stuck"});
  };
  for (const auto& [change, one, several] : std::vector<Case>{
           {[](auto& rank) { rank.state = "T"; }, "is stopped (SIGSTOP)", "are stopped (SIGSTOP)"},
           {[](auto& rank) { rank.state = "t"; }, "is stopped by a debugger"},
           {[](auto& rank) { rank.state = "D"; }, "waits for a disk or file system (D state)",
            "wait for a disk or file system (D state)"},
           {[](auto& rank) { rank.waits = "file system (fuse_x)"; }, "waits for a file system (fuse_x)"},
           {[](auto& rank) { rank.state = "Z"; }, "has ended, and its parent has not noticed (zombie)",
            "have ended, and their parents have not noticed (zombies)"},
           {[](auto& rank) { rank.links.clear(); },
            "has no connection to MASTER_PORT 29500 of node001, where the other 7 are connected"},
           {[](auto& rank) { rank.unread = "no"; }, "is unknown: no"},
           {[](auto& rank) { rank.waits = "poll"; }, maybe("it", "differs: waits in poll, the others in futex"),
            maybe("they", "differ: wait in poll, the others in futex")},
           {[](auto& rank) { rank.cpu = 99; }, maybe("it", "differs: 99 % CPU, waits in futex; the others 0 %"),
            maybe("they", "differ: 99 % CPU; the others 0 %")},
           {[](auto& rank) { rank.cpu_wait = 99, rank.is_still = false; },
            maybe("it", "differs: 0 % CPU, waits for a core; the others 0 %")},
           {[](auto& rank) { rank.child = "python3 (pid 9) is stopped (SIGSTOP)"; },
            "has a child process that is held up: python3 (pid 9) is stopped (SIGSTOP)"}}) {
    EXPECT_EQ(with({5}, change), "rank 5 (node002, local rank 1, pid 105) " + one);
    if (several.empty()) continue;
    EXPECT_EQ(with({4, 5}, change), "ranks 4-5 (node002) " + several);
  }
  const auto moment = [](auto& rank) {
    rank.state = "D";
    rank.is_still = false;
  };
  EXPECT_EQ(with({5}, moment), "none of the 8 ranks stands out") << "a moment in a disk wait is none";
  EXPECT_EQ(first_line(healthy()), "all 8 ranks run alike");
}

TEST(StatusJudgement, AnEndedRank) {
  auto step = healthy();
  step.ranks.erase(step.ranks.begin() + 3);
  EXPECT_EQ(first_line(step), "rank 3 (node001, local rank 3) has ended; 7 ranks are there");
  step.ranks.erase(step.ranks.begin() + 3, step.ranks.end());
  EXPECT_EQ(first_line(step), "ranks 3-7 (node001, node002) have ended; 3 ranks are there");
}

TEST(StatusJudgement, AWholeNodeWithoutConnection) {
  auto step = healthy();
  for (std::size_t i = 4; i < kRanks; ++i) step.ranks[i].links.clear();
  EXPECT_EQ(
      first_line(step),
      "ranks 4-7 (all of node002) have no connection to MASTER_PORT 29500 of node001, where the other 4 are connected");
}

TEST(StatusJudgement, ARankThatTalksToOthersIsNotBeforeTheRendezvous) {
  auto step = healthy();
  step.ranks[5].links = {"50000:60000"};
  step.ranks[6].links.emplace_back("60000:50000");
  EXPECT_EQ(first_line(step), "none of the 8 ranks stands out");
}

TEST(StatusJudgement, APortOfMpiIsNoRendezvous) {
  auto step = healthy();
  for (auto& rank : step.ranks) {
    rank.framework = "MPI";
    rank.meetings.clear();
    rank.links = {"40000:1024"};
    rank.listens = {1024};
  }
  step.ranks[5].links.clear();
  EXPECT_EQ(first_line(step), "all 8 ranks run alike");
}

TEST(StatusJudgement, RanksBelowALauncher) {
  auto step = healthy();
  step.ranks[2].framework.clear();
  step.ranks[2].program = "sleep";
  step.ranks[2].chain = "bash, sleep";
  EXPECT_EQ(first_line(step),
            "rank 2 (node001, local rank 2, pid 102) runs sleep (below bash) without PyTorch, which the other 7 ranks "
            "have loaded; it waits in futex");
  step.ranks[2].is_launcher = true;
  EXPECT_EQ(first_line(step), "rank 2 (node001, local rank 2, pid 102) runs only bash, sleep; no program runs below");
}

TEST(StatusJudgement, StacksShowAnotherCollective) {
  auto step = healthy();
  for (auto& rank : step.ranks) rank.stack = {"all_reduce (torch/x.py:7)", "* main (train.py:20)"};
  EXPECT_EQ(first_line(step), "all 8 ranks run alike");
  step.ranks[5].stack = {"barrier (torch/x.py:9)", "* main (train.py:14)"};
  EXPECT_EQ(first_line(step),
            "rank 5 (node002, local rank 1, pid 105) differs: in barrier, called by main (train.py:14); the others in "
            "all_reduce, called by main "
            "(train.py:20); it may be slow, in a checkpoint, or stuck");
}

TEST(StatusJudgement, NumbersOfSeveralWorlds) {
  auto step = healthy();
  for (std::size_t i = 4; i < kRanks; ++i) step.ranks[i].rank = i - 4;
  const auto judgement = judge(step, kRanks);
  EXPECT_EQ(judgement.ranks.size(), kRanks);
  EXPECT_EQ(judgement.ranks[7].rank, 7U);
  EXPECT_FALSE(judgement.also.empty());
}

TEST(StatusJudgement, AlsoSeen) {
  auto step = healthy();
  step.ranks[0].gpu_ids = step.ranks[1].gpu_ids = {"GPU-1"};
  step.ranks[4].gpu_ids = {"GPU-1"};
  step.ranks[2].cores = step.ranks[3].cores = "7";
  step.ranks[1].cores = "0-7";
  for (auto& rank : step.ranks) rank.nccl_build = "aa";
  step.ranks[6].nccl_build = "bb";
  const auto also = judge(step, kRanks).also;
  ASSERT_EQ(also.size(), 3U);
  EXPECT_EQ(also[0], "ranks 0-1 of node001 use one GPU, GPU-1");
  EXPECT_EQ(also[1], "ranks 2-3 of node001 may run on one core only, core 7");
  EXPECT_EQ(also[2],
            "ranks have loaded 2 different builds of libnccl; rank 6 (node002, local rank 2, pid 106) has build bb");
}

TEST(StatusJudgement, FarApart) {
  EXPECT_TRUE(far_apart({}).empty());
  EXPECT_TRUE(far_apart({100}).empty());
  EXPECT_TRUE(far_apart({30, 45, 60, 75, 90}).empty()) << "a busy node";
  EXPECT_TRUE(far_apart({0, 1, 2, 12}).empty());
  EXPECT_EQ(far_apart({100, 0, 98, 99}), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(far_apart({8, 14, 0, 9}), (std::vector<bool>{false, false, true, false}))
      << "a machine with much other work";
  EXPECT_EQ(far_apart({2, 25, 30, 28}), (std::vector<bool>{true, false, false, false})) << "many ranks on few cores";
  EXPECT_EQ(far_apart({42, 20, 0, 30}), (std::vector<bool>{false, false, true, false}))
      << "the widest gap is between others";
  EXPECT_EQ(far_apart({100, 0}), (std::vector<bool>{false, true})) << "not rank 0 of two";
}

TEST(StatusText, TheSmallestGroupComesFirst) {
  auto step = healthy();
  step.ranks[5].state = "T";
  const auto judgement = judge(step, kRanks);
  const auto groups = group_ranks(judgement.ranks);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(list_ranks(groups[0]), "5");
  EXPECT_EQ(list_ranks(groups[1]), "0-4,6-7");
  const auto text = status_text(judgement, "12.0", false);
  EXPECT_NE(text.find("\n0-4,6-7  2 nodes  -    connected"), std::string::npos) << text;
}

TEST(StatusText, ForHowLongOnlyWhereTwoLooksAgree) {
  auto step = healthy();
  step.ranks[5].state = "T";
  SeenSince since;
  const std::chrono::steady_clock::time_point start{};
  auto first = judge(step, kRanks);
  since.note(first, start);
  EXPECT_TRUE(first.findings[0].sentence.ends_with("is stopped (SIGSTOP)"));
  auto second = judge(step, kRanks);
  since.note(second, start + std::chrono::seconds(12));
  EXPECT_TRUE(second.findings[0].sentence.ends_with(", for at least 12 s"));
  auto other = judge(healthy(), kRanks);
  since.note(other, start + std::chrono::seconds(20));
  auto again = judge(step, kRanks);
  since.note(again, start + std::chrono::seconds(30));
  EXPECT_TRUE(again.findings[0].sentence.ends_with("is stopped (SIGSTOP)"));
}

}  // namespace
}  // namespace bootstrap
