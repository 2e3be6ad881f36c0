// Communicators with threads as ranks: the round in which they agree, NCCL's part with its double, and each outcome.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/communicator.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "comm/nccl/cuda_device.h"
#include "communicator_step.h"
#include "in_child.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

using Answers = std::vector<std::string>;

TEST(Groups, AreTheWorldTheNodeAndTheSameLocalRank) {
  const auto layout = layout_of({2, 3, 1});
  EXPECT_EQ(world_group(layout, 4).ranks, (std::vector<Rank>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(world_group(layout, 4).own, 4U);
  EXPECT_EQ(node_group(layout, 3).ranks, (std::vector<Rank>{2, 3, 4}));
  EXPECT_EQ(node_group(layout, 3).own, 1U);
  EXPECT_EQ(cross_group(layout, 2).ranks, (std::vector<Rank>{0, 2, 5}));
  EXPECT_EQ(cross_group(layout, 5).own, 2U);
  EXPECT_EQ(cross_group(layout, 4).ranks, (std::vector<Rank>{4}));
  // With --distribution=cyclic or arbitrary the order of nodes is that of their lowest ranks.
  const auto mixed = *Layout::make({{*parse_host_list("node[001-003]"), {1, 2, 1}, {2, 1, 0, 1}}});
  EXPECT_EQ(cross_group(mixed, 2).ranks, (std::vector<Rank>{0, 1, 2}));
  EXPECT_EQ(node_group(mixed, 3).ranks, (std::vector<Rank>{1, 3}));
}

TEST(Groups, AreRefusedIfTheListIsWrong) {
  const auto layout = layout_of({2, 2});
  const auto listed = succeeded(list_group(layout, 2, {3, 2, 0}));
  EXPECT_EQ(listed->ranks, (std::vector<Rank>{3, 2, 0})) << "in the order given";
  EXPECT_EQ(listed->own, 1U);
  EXPECT_TRUE(list_group(layout, 2, {}));
  const auto refusal = [&](std::vector<Rank> ranks) {
    return error_of(list_group(layout, 2, std::move(ranks))).message;
  };
  EXPECT_EQ(refusal({2, 4}), "the list has rank 4, but the ranks of this step are 0 to 3");
  EXPECT_EQ(refusal({2, 0, 2}), "the list has rank 2 twice");
  EXPECT_EQ(refusal({0, 1}),
            "the list of 2 ranks does not contain this rank, 2; a rank that is in no group passes an empty list");
}

TEST(Communicator, IsMadeWithAnyNumberOfRoots) {
  for (const std::uint32_t roots : {0U, 1U, 2U, 3U, 5U, 6U}) {
    Step step({2, 3, 1});
    const auto comms = step.make([&](Rank, Call& call) { call.options.roots = roots; });
    EXPECT_EQ(used(comms), (Answers{"0/6 15", "1/6 15", "2/6 15", "3/6 15", "4/6 15", "5/6 15"})) << roots << " roots";
    EXPECT_EQ(step.values_read(), 6 * 6) << "each rank's value, which has the ids, too";
  }
}

TEST(Communicator, IsMadeByEachVersionOfNccl) {
  for (const std::string version : {"2.14.3", "2.18.3", "2.23.4", "2.28.9"}) {
    for (const bool nonblocking : {false, true}) {
      Step step({2, 2}, version);
      const auto comms = step.make([&](Rank, Call& call) { call.options.nonblocking = nonblocking; });
      if (!nonblocking) {
        EXPECT_EQ(used(comms, version), (Answers{"0/4 6", "1/4 6", "2/4 6", "3/4 6"})) << version;
        continue;
      }
      EXPECT_EQ(sentences(comms), std::multiset<std::string>()) << version;
      const auto abort = nccl_double(version).abort;
      for (const auto& comm : comms) EXPECT_EQ(comm ? abort(*comm) : -1, nccl::kSuccess);
    }
  }
}

// NCCL refuses a configuration that is not from its macro, so it received this one, and not ours.
TEST(Communicator, HasTheConfigurationOfTheCaller) {
  for (const std::uint32_t roots : {1U, 2U}) {
    for (const bool is_good : {true, false}) {
      nccl::Config config;
      if (!is_good) config.magic = 0;
      Step step({2, 2});
      const auto comms = step.make([&](Rank, Call& call) {
        call.options.roots = roots;
        call.options.config.assign(reinterpret_cast<const char*>(&config), sizeof config);
      });
      if (is_good) {
        EXPECT_EQ(used(comms), (Answers{"0/4 6", "1/4 6", "2/4 6", "3/4 6"})) << roots;
      }
      for (const auto& text : sentences(comms)) {
        EXPECT_NE(text.find("not initialized via NCCL_CONFIG_INITIALIZER"), std::string::npos) << text;
      }
      EXPECT_EQ(sentences(comms).empty(), is_good);
    }
  }
}

TEST(Communicator, MayNotHaveMoreRootsThanRanks) {
  Step step({2, 1});
  const auto comms = step.make([&](Rank, Call& call) { call.options.roots = 4; });
  const auto texts = sentences(comms);
  EXPECT_EQ(texts.size(), 3U);
  for (const auto& text : texts)
    EXPECT_NE(text.find("4 roots requested for a communicator of 3 ranks"), std::string::npos) << text;
}

TEST(Communicator, IsMadeForEachKindOfGroup) {
  const auto layout = layout_of({2, 3, 1});
  struct Row {
    const char* why;
    std::function<Group(Rank)> group;
    Answers answers;
  };
  const auto listed = [&](Rank rank) {
    const std::vector<Rank> list = rank == 1       ? std::vector<Rank>{}
                                   : rank % 2 == 1 ? std::vector<Rank>{5, 3}
                                                   : std::vector<Rank>{4, 0, 2};
    return *list_group(layout, rank, list);
  };
  for (const auto& row :
       std::initializer_list<Row>{{"node",
                                   [&](Rank rank) { return node_group(layout, rank); },
                                   {"0/2 1", "1/2 1", "0/3 9", "1/3 9", "2/3 9", "0/1 5"}},
                                  {"cross",
                                   [&](Rank rank) { return cross_group(layout, rank); },
                                   {"0/3 7", "0/2 4", "1/3 7", "1/2 4", "0/1 4", "2/3 7"}},
                                  {"list", listed, {"1/3 6", "none", "2/3 6", "1/2 8", "0/3 6", "0/2 8"}}}) {
    Step step({2, 3, 1});
    const auto comms = step.make([&](Rank rank, Call& call) {
      call.group = row.group(rank);
      call.options.roots = 2;  // a group of one rank has one root
    });
    EXPECT_EQ(used(comms), row.answers) << row.why;
  }
  Step alone({1});
  EXPECT_EQ(used(alone.make(kNoChange)), (Answers{"0/1 0"}));
}

// CUDA's current device belongs to a thread, and NCCL is called in another thread than the caller's.
TEST(Communicator, UsesTheCallersGpuIfNoneIsNamed) {
  in_child([] {
    load_gpus("4");
    Step step({3});
    const auto comms = step.make(
        [](Rank rank, Call& call) { call.before = [rank] { EXPECT_TRUE(use_gpu(static_cast<int>(rank) + 1)); }; });
    for (const auto& comm : comms) EXPECT_TRUE(comm) << comm.error().message;
  });
}

// NCCL prefers the environment's mode, and the call waits for a non-blocking communicator.
TEST(Communicator, IsReadyAlsoWhenTheEnvironmentMakesItNonBlocking) {
  in_child([] {
    ::setenv("NCCL_COMM_BLOCKING", "0", 1);
    Step step({2, 2});
    const auto comms = step.make(kNoChange);
    const auto nccl = nccl_double("2.28.9");
    const auto destroy = nccl_double_function<decltype(&ncclCommDestroy)>("2.28.9", "ncclCommDestroy");
    for (const auto& comm : comms) {
      ASSERT_TRUE(comm) << comm.error().message;
      nccl::ResultCode state = -1;
      EXPECT_EQ(nccl.get_async_error(*comm, &state), nccl::kSuccess);
      EXPECT_EQ(state, nccl::kSuccess);
      EXPECT_EQ(destroy(*comm), ncclSuccess);
    }
  });
}

}  // namespace
}  // namespace bootstrap
