// Checks before a communicator is made: each disagreement is one sentence that names two ranks.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "comm/nccl/communicator.h"
#include "communicator_step.h"
#include "core/util/records.h"
#include "in_child.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

using Sentences = std::multiset<std::string>;

Sentences times(std::size_t count, const std::string& sentence) {
  Sentences all;
  for (std::size_t i = 0; i < count; ++i) all.insert(sentence);
  return all;
}

RankSpec whole_spec() {
  return {.roots = 3, .members = 0xfedcba98, .nccl_version = 22809, .gpu = "0000:3b:00.0", .refusal = "no\nNCCL"};
}

// Text of another process that reaches the user's terminal is printable and short.
TEST(RankSpec, ArrivesAsItWasSentOrIsRefused) {
  auto spec = whole_spec();
  const auto text = write_record(spec);
  spec.refusal = "no?NCCL";  // one line
  EXPECT_EQ(read_record<RankSpec>(text), spec);
  EXPECT_EQ(read_record<RankSpec>(write_record(RankSpec())), RankSpec());
  for (const std::string other : {"", "spec 2\ncommunicator\n", "1\t1\t22809\t\ta\x1b[2Jb\t"}) {
    EXPECT_FALSE(read_record<RankSpec>(other)) << other;
  }
}

TEST(Guard, RefusesRanksThatDoNotFitTogether) {
  const auto old = nccl_double("2.18.3");
  const auto lists = [](Rank rank, Call& call) {
    const auto ranks = rank == 2 ? std::vector<Rank>{0, 2, 1} : std::vector<Rank>{0, 1, 2};
    call.group = *list_group(layout_of({3}), rank, ranks);
  };
  struct Row {
    const char* why;
    const char* version;
    Change change;
    ErrorCode code;
    std::string sentence;  // of all ranks
  };
  for (
      const auto& row : std::initializer_list<Row>{
          {"versions", "2.28.9",
           [&](Rank rank, Call&call) {
             if (rank == 2) call.nccl = old;
           },
           ErrorCode::kDisagreement,
           "NCCL 2.28.9 on rank 0 (node001, local rank 0) and 2.18.3 on rank 2 (node001, local rank 2): all ranks of a "
           "communicator need the same version; set LD_LIBRARY_PATH or SLURM_BOOTSTRAP_NCCL to a libnccl.so.2 that all "
           "nodes have"},
          {"lists", "2.28.9", lists, ErrorCode::kDisagreement,
           "rank 0 (node001, local rank 0) and rank 2 (node001, local rank 2) pass different lists of ranks: all "
           "members of a communicator must pass the same list in the same order"},
          {"roots", "2.28.9", [](Rank rank, Call&call) { call.options.roots = rank == 1 ? 2 : 1; },
           ErrorCode::kDisagreement,
           "rank 0 (node001, local rank 0) asks for 1 root, rank 1 (node001, local rank 1) for 2: all members of a "
           "communicator must pass the same number"},
          {"roots of an old NCCL", "2.18.3", [](Rank, Call&call) { call.options.roots = 2; }, ErrorCode::kUnsupported,
           "2 roots need ncclCommInitRankScalable of NCCL 2.23 or newer, but this is NCCL 2.18.3 in " +
               nccl_double_path("2.18.3")}}) {
    Step step({3}, row.version);
    const auto comms = step.make(row.change);
    EXPECT_EQ(sentences(comms), times(3, row.sentence)) << row.why;
    EXPECT_EQ(comms[0] ? ErrorCode::kInvalid : comms[0].error().code, row.code) << row.why;
  }
}

constexpr std::chrono::seconds kWait(10);  // the deadline, at which ranks ask for the message of the failed rank

// The rank detects it in the root's value, and the other ranks read its report at their deadline.
TEST(Guard, RefusesVersionsAcrossNodes) {
  Step step({1, 1, 1});
  const auto old = nccl_double("2.18.3");
  const auto comms = step.make(
      [&](Rank rank, Call& call) {
        call.options.nonblocking = true;
        if (rank == 2) call.nccl = old;
      },
      kWait);
  for (const auto& comm : comms) {
    const auto said = error_of(comm).message;
    EXPECT_NE(said.find("NCCL 2.28.9 on rank 0 (node001, local rank 0) and 2.18.3 on rank 2 (node003, local rank 0): "),
              std::string::npos)
        << said;
  }
}

constexpr const char* kOneGpu =
    "rank 1 (node001, local rank 1) and rank 3 (node001, local rank 3) are both on GPU 0000:2a:00.0: each rank of a "
    "communicator needs its own; request a GPU for each task (srun --gpus-per-node), and use the device of "
    "bootstrap_device() in each rank";

const Change kTwoOnOneGpu = [](Rank rank, Call& call) { call.options.device = rank == 3 ? 1 : static_cast<int>(rank); };

TEST(Guard, NamesTwoRanksOnOneGpu) {
  in_child([] {
    load_gpus("4");
    Step step({4});
    EXPECT_EQ(sentences(step.make(kTwoOnOneGpu)), times(4, kOneGpu));
    // Control: with one GPU for each rank they make their communicator.
    const auto right = step.make([](Rank rank, Call& call) { call.options.device = static_cast<int>(rank); });
    EXPECT_EQ(sentences(right), Sentences());
  });
}

// Control: without the guard NCCL refuses on these two ranks only, with another message; the others read their reports.
TEST(Guard, RunsBeforeNcclsOwnCheck) {
  in_child([] {
    load_gpus("4");
    Step step({4});
    const auto comms = step.make(
        [](Rank rank, Call& call) {
          kTwoOnOneGpu(rank, call);
          ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);  // the guard leaves the check to NCCL
        },
        kWait);
    const auto said = [&](Rank rank) { return comms[rank] ? std::string() : comms[rank].error().message; };
    const std::string refused = "ncclCommInitRank failed: invalid usage (run with NCCL_DEBUG=WARN for details) ";
    // NCCL keeps one last error for the process, which these ranks share.
    for (const Rank rank : {1U, 3U}) {
      EXPECT_TRUE(said(rank).starts_with(refused + "(Duplicate GPU detected : rank ")) << said(rank);
    }
    for (const Rank rank : {0U, 2U}) {
      const bool is_named = said(rank).starts_with("rank 1 (node001, local rank 1): " + refused) ||
                            said(rank).starts_with("rank 3 (node001, local rank 3): " + refused);
      EXPECT_TRUE(is_named) << said(rank);
    }
  });
}

// Ranks of different communicators may use one GPU, and GPUs of different nodes may have the same names.
TEST(Guard, ComparesGpusWithinACommunicatorAndANode) {
  in_child([] {
    load_gpus("2");
    Step step({2, 2});
    const auto comms = step.make([&](Rank rank, Call& call) {
      call.options.device = 0;
      call.group = *list_group(step.layout(), rank, {rank});
    });
    EXPECT_EQ(sentences(comms), Sentences());
  });
  auto able = whole_spec();
  able.refusal.clear();
  auto other = able;
  other.rank = 1;
  EXPECT_TRUE(compare(layout_of({1, 1}), able, other));
  EXPECT_FALSE(compare(layout_of({2}), able, other)) << "control";
}

// Only one rank has the list, so the root makes no id.
TEST(Guard, NamesARootWithoutAnId) {
  Step step({1, 1});
  const auto comms = step.make(
      [&](Rank rank, Call& call) {
        call.options.nonblocking = true;
        call.group = *list_group(step.layout(), rank, rank == 0 ? std::vector<Rank>{} : std::vector<Rank>{0, 1});
      },
      std::chrono::seconds(3));
  EXPECT_TRUE(comms[0]);
  EXPECT_EQ(sentences(comms),
            times(1,
                  "rank 0 (node001, local rank 0) provided no unique id, and rank 1 (node002, local rank 0) expects "
                  "one from it: all members of a communicator must pass the same ranks and roots"));
}

TEST(Guard, ARankThatCannotTakePartSendsTheReason) {
  Step step({3});
  const auto comms = step.make([](Rank rank, Call& call) {
    if (rank == 1) call.options.refusal = Error{ErrorCode::kUnavailable, "there is no libnccl.so.2"};
  });
  auto expected = times(2, "rank 1 (node001, local rank 1) cannot take part: there is no libnccl.so.2");
  expected.insert("there is no libnccl.so.2");
  EXPECT_EQ(sentences(comms), expected);
}

// All ranks read a root's value, on every node.
TEST(Guard, ARootThatFailsToMakeAnIdSendsTheReason) {
  Step step({1, 1, 1});
  const auto comms = step.make([](Rank rank, Call& call) {
    if (rank != 0) return;
    call.nccl.get_unique_id = [](nccl::UniqueId*) -> nccl::ResultCode { return 2; };
    call.nccl.get_last_error = [](nccl::Comm) { return "Bootstrap : no socket interface found\n"; };
  });
  const std::string reason =
      "ncclGetUniqueId failed: unhandled system error (run with NCCL_DEBUG=INFO for details) (Bootstrap : no socket "
      "interface found)";
  auto expected = times(2, "rank 0 (node001, local rank 0) cannot take part: " + reason);
  expected.insert(reason);
  EXPECT_EQ(sentences(comms), expected);
}

TEST(UniqueIds, AreTheSameInAGroupAndDifferBetweenGroups) {
  Step step({2, 2});
  const auto world = step.make_ids(3, kNoChange);
  std::set<std::string> distinct;
  for (const auto& ids : world) {
    ASSERT_TRUE(ids) << ids.error().message;
    ASSERT_EQ(ids->size(), 3U);
    for (const auto& id : *ids) distinct.emplace(id.internal.data(), id.internal.size());
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ((*ids)[i].internal, (*world[0])[i].internal) << "in the same order";
  }
  EXPECT_EQ(distinct.size(), 3U);
  const auto nodes = step.make_ids(1, [&](Rank rank, Call& call) { call.group = node_group(step.layout(), rank); });
  for (const auto& ids : nodes) ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_EQ((*nodes[0])[0].internal, (*nodes[1])[0].internal);
  EXPECT_EQ((*nodes[2])[0].internal, (*nodes[3])[0].internal);
  EXPECT_NE((*nodes[0])[0].internal, (*nodes[2])[0].internal);
  EXPECT_EQ(error_of(step.make_ids(5, kNoChange)[0]).message,
            "5 unique ids requested for a group of 4 ranks; the most is one for each rank");
}

constexpr std::string_view kOneRoot =
    "NCCL_COMM_ID=127.0.0.1:4321 is in the environment: NCCL makes one communicator with it, of all ranks and with one "
    "root";

// NCCL would wait forever, or fail to bind the address of another node.
TEST(UniqueIds, AreRefusedIfNcclCommIdDoesNotFit) {
  const auto many = world_group(layout_of({600}), 0);
  in_child([&many] {
    ::setenv("NCCL_COMM_ID", "127.0.0.1:4321", 1);
    const auto refused = [](Step& step, const Change& change) {
      const auto said = sentences(step.make(change));
      EXPECT_EQ(said.size(), 4U);
      return std::all_of(said.begin(), said.end(), [](auto& text) { return text.find(kOneRoot) != std::string::npos; });
    };
    Step step({2, 2});
    EXPECT_TRUE(refused(step, [](Rank, Call& call) { call.options.roots = 2; }));
    EXPECT_TRUE(refused(step, [&](Rank rank, Call& call) { call.group = node_group(step.layout(), rank); }));
    EXPECT_EQ(used(step.make(kNoChange)), (std::vector<std::string>{"0/4 6", "1/4 6", "2/4 6", "3/4 6"})) << "as NCCL";
    EXPECT_EQ(roots_of({.group = many, .nccl = nccl_double("2.28.9")}), 1U);
  });
  EXPECT_EQ(roots_of({.group = many, .nccl = nccl_double("2.28.9")}), 3U) << "control";
  EXPECT_EQ(roots_of({.group = many, .nccl = nccl_double("2.18.3")}), 1U);
}

}  // namespace
}  // namespace bootstrap
