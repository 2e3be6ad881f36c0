// How the hooks around NCCL know a call: by the communicator that it makes, and by the place that it comes from.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "preload/nccl_hooks/communicator_key.h"
#include "preload/nccl_hooks/real_functions.h"

namespace bootstrap {
namespace {

TEST(Topic, IsTheSameForOneIdAndAnotherForOthers) {
  nccl::UniqueId ids[2] = {};
  ids[1].internal[127] = 1;
  EXPECT_EQ(topic_of(&ids[0], 1), topic_of(&ids[0], 1));
  EXPECT_NE(topic_of(&ids[0], 1), topic_of(&ids[1], 1));
}

TEST(Topic, CallsOnOneCommunicatorDifferAndAgreeBetweenRanks) {
  int places[3];  // the value of each is its rank
  for (int i = 0; i < 3; ++i) places[i] = i;
  const auto comm = [&](int i) { return reinterpret_cast<nccl::Comm>(&places[i]); };
  nccl::Functions nccl;
  nccl.count = [](nccl::Comm, int* ranks) { return *ranks = 4, nccl::kSuccess; };
  nccl.user_rank = [](nccl::Comm of, int* rank) { return *rank = *reinterpret_cast<int*>(of), nccl::kSuccess; };
  remember(comm(0), 7);
  remember(comm(1), 7);
  const auto first = call_on(nccl, comm(0), "ncclCommSplit");
  const auto second = call_on(nccl, comm(0), "ncclCommSplit");
  const auto of_other = call_on(nccl, comm(1), "ncclCommSplit");
  ASSERT_TRUE(first && second && of_other);
  EXPECT_NE(first->topic, second->topic);
  EXPECT_EQ(first->topic, of_other->topic);
  EXPECT_EQ(of_other->rank, 1U);
  EXPECT_FALSE(call_on(nccl, comm(2), "ncclCommSplit"));
  // A rank that is left out of a shrink goes on as the others do.
  EXPECT_NE(call_on(nccl, comm(0), "ncclCommShrink", Callers::kSome)->topic, first->topic);
  EXPECT_EQ(call_on(nccl, comm(1), "ncclCommSplit")->topic, second->topic);
  EXPECT_EQ(call_on(nccl, comm(0), "ncclCommSplit")->topic, call_on(nccl, comm(1), "ncclCommSplit")->topic);
  // The address of one that has been destroyed may come again as a communicator that is not known.
  forget_topic(comm(1));
  EXPECT_FALSE(call_on(nccl, comm(1), "ncclCommSplit"));
}

// Functions of libc stand for NCCL's, which are looked for by name likewise.
TEST(HookedFunction, TwoCallsFromOnePlaceReachTwoFunctions) {
  const int place = 0;
  auto* const first = real_function(&place, "getpid");
  auto* const second = real_function(&place, "getppid");
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(real_function(&place, "getpid"), first);
  EXPECT_EQ(real_function(&place, "no_such_function"), nullptr);
}

}  // namespace
}  // namespace bootstrap
