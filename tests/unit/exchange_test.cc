// The data of an exchange: values with their tags, in pieces for PMI-1. NCCL's rule for the rank that makes each unique
// id. The owner of the PMIx variables.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/exchanged_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "core/exchange/pmix_environment.h"
#include "known_layout.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

const CallTag kTag{{12, 3, 1}, 41, "communicator of the node"};

TEST(TaggedValue, IsReadAsItWasWritten) {
  for (const std::string& bytes : {std::string(), std::string("id"), std::string("\n\0 \n", 4)}) {
    const auto text = encode_tagged_value(kTag, bytes);
    const auto value = decode_tagged_value(text);
    ASSERT_TRUE(value);
    EXPECT_EQ(value->tag, kTag);
    EXPECT_EQ(value->bytes, bytes);
  }
}

TEST(TaggedValue, EveryPartOfTheTagCounts) {
  const auto text = encode_tagged_value(kTag, "x");
  for (const CallTag& other : {CallTag{{13, 3, 1}, 41, kTag.purpose}, CallTag{{12, 4, 1}, 41, kTag.purpose},
                               CallTag{{12, 3, 2}, 41, kTag.purpose}, CallTag{{12, 3, 1}, 42, kTag.purpose},
                               CallTag{{12, 3, 1}, 41, "barrier"}}) {
    EXPECT_FALSE(decode_tagged_value(text)->tag == other);
  }
}

TEST(TaggedValue, RefusesOtherText) {
  const auto text = encode_tagged_value(kTag, "bytes");
  for (std::size_t length = 0; length <= text.find('\n'); ++length) {
    EXPECT_FALSE(decode_tagged_value(text.substr(0, length))) << length;
  }
  for (const auto* other : {"1\t2\t3\t0\t-4\tx\t\t0\t\n", "1\t2\t3\t0\t4\tx\t\n", "1\t2\t3\t2\t4\tx\t\t0\t\n",
                            "1\t2\t3\t0\t4\tx\t\t99\t\n", "4294967296\t2\t3\t0\t4\tx\t\t0\t\n", "\n", "   \n"}) {
    EXPECT_FALSE(decode_tagged_value(other)) << other;
  }
}

TEST(TaggedValue, HasTheReasonOfARankThatRefuses) {
  CallTag refused = kTag;
  refused.refusal = "70000 bytes are too many";
  refused.code = ErrorCode::kLimit;
  const auto text = encode_tagged_value(refused, "");
  const auto error = disagreement(block_layout(2, 2), 3, decode_tagged_value(text)->tag, kTag);
  EXPECT_EQ(error.code, ErrorCode::kLimit);
  EXPECT_EQ(error.message, "rank 3 (node002, local rank 1): 70000 bytes are too many");
}

TEST(TaggedValue, IsDescribedByItsCall) {
  EXPECT_EQ(describe(kTag), "'communicator of the node' as its call number 42");
}

bool fits(const std::string& piece) {
  return piece.size() < kMaxPmiValue &&
         std::all_of(piece.begin(), piece.end(), [](char letter) { return letter > ' ' && letter < 127; });
}

TEST(PmiPieces, CarryBytesOfEachLength) {
  std::mt19937 random(11);
  for (std::size_t size : {0U, 1U, 2U, 3U, 4U, 128U, 499U, 500U, 501U, 999U, 1000U, 1001U, 65536U}) {
    std::string bytes(size, '\0');
    for (auto& byte : bytes) byte = static_cast<char>(random());
    const auto pieces = to_pmi_pieces(bytes);
    EXPECT_TRUE(std::all_of(pieces.begin(), pieces.end(), fits)) << size;
    EXPECT_EQ(count_pmi_pieces(pieces.front()), pieces.size()) << size;
    EXPECT_EQ(from_pmi_pieces(pieces), bytes) << size;
    if (pieces.size() < 2) continue;
    EXPECT_FALSE(from_pmi_pieces({pieces.front()})) << "a piece is missing, " << size;
  }
}

TEST(PmiPieces, AreRefusedIfTheyAreInvalid) {
  for (const char* text : {"", "x", ":AA", "0:", "-1:AA", "99999999999:AA", "1;AA"}) {
    EXPECT_FALSE(count_pmi_pieces(text)) << text;
  }
  EXPECT_FALSE(from_pmi_pieces({}));
  for (const auto* text : {"1:A A", "1:AAA", "1:AG"}) EXPECT_FALSE(from_pmi_pieces({text})) << text;
  EXPECT_FALSE(from_pmi_pieces({"2:AA"}));
}

// Each root takes its share of the remaining ranks, rounded up, as in NCCL's documentation of
// ncclCommInitRankScalable: 10 ranks and 4 roots are runs of 3, 3, 2 and 2.
TEST(Roots, DealRanksOutAsEvenlyAsTheyCan) {
  for (std::uint32_t ranks = 1; ranks <= 512; ++ranks) {
    for (std::uint32_t roots = 1; roots <= ranks; ++roots) {
      std::uint32_t first = 0;
      for (std::uint32_t root = 0; root < roots; ++root) {
        ASSERT_EQ(rank_of_root(root, ranks, roots), first) << root << " of " << roots << " for " << ranks << " ranks";
        const auto left = roots - root;
        first += (ranks - first + left - 1) / left;
      }
      ASSERT_EQ(first, ranks);
    }
  }
}

TEST(Roots, HaveAtMost256RanksEach) {
  EXPECT_EQ(root_count(0), 1U);
  EXPECT_EQ(root_count(1), 1U);
  EXPECT_EQ(root_count(256), 1U);
  EXPECT_EQ(root_count(257), 2U);
  EXPECT_EQ(root_count(512), 2U);
  EXPECT_EQ(root_count(513), 3U);
  EXPECT_EQ(root_count(100000), 391U);
  EXPECT_EQ(root_count(7, 1), 7U);
  EXPECT_EQ(root_count(7, 0), 7U);
  EXPECT_EQ(root_count(UINT32_MAX, 1), UINT32_MAX);
  for (std::uint32_t ranks = 1; ranks < 5000; ++ranks) {
    const auto roots = root_count(ranks);
    for (std::uint32_t root = 0; root < roots; ++root) {
      const auto end = root + 1 < roots ? rank_of_root(root + 1, ranks, roots) : ranks;
      ASSERT_LE(end - rank_of_root(root, ranks, roots), kRanksPerRoot) << ranks << " ranks, root " << root;
    }
  }
}

constexpr StepId kStep{12, 3, 0};

Environment slurms() {
  return environment_of({{"PMIX_NAMESPACE", "slurm.pmix.12.3"},
                         {"PMIX_RANK", "7"},
                         {"PMIX_SERVER_URI41", "pmix-server.17549;tcp4://127.0.0.1:46173"},
                         {"PMIX_SERVER_URI2", "pmix-server.17549;tcp4://127.0.0.1:1"}});
}

ErrorCode refusal(const Environment& environment) {
  const auto server = check_pmix_environment(environment, kStep, 7);
  EXPECT_FALSE(server);
  if (server) return ErrorCode::kLimit;
  EXPECT_NE(server.error().message.find("srun --mpi=pmix"), std::string::npos) << server.error().message;
  return server.error().code;
}

TEST(PmixGate, AcceptsTheServerOfTheStep) {
  const auto server = succeeded(check_pmix_environment(slurms(), kStep, 7));
  EXPECT_EQ(server->name_space, "slurm.pmix.12.3");
  EXPECT_EQ(server->port, 46173);
  EXPECT_TRUE(server->loses_early_messages);
}

TEST(PmixGate, JobStartTimeShowsAReleaseThatLosesNoMessages) {
  const auto server =
      succeeded(check_pmix_environment(with(slurms(), {{"SLURM_JOB_START_TIME", "1795616689"}}), kStep, 7));
  EXPECT_FALSE(server->loses_early_messages);
}

TEST(PmixGate, ReportsMissingVariables) {
  EXPECT_EQ(refusal({}), ErrorCode::kMissing);
  auto environment = slurms();
  environment.unset("PMIX_NAMESPACE");
  EXPECT_EQ(refusal(environment), ErrorCode::kMissing);
  environment = slurms();
  environment.unset("PMIX_SERVER_URI41");
  environment.unset("PMIX_SERVER_URI2");
  EXPECT_EQ(refusal(environment), ErrorCode::kMissing);
}

TEST(PmixGate, RefusesLeftoversOfAnotherStepOrLauncher) {
  for (const auto* name_space : {"slurm.pmix.12.2", "slurm.pmix.11.3", "slurm.pmix.12.33", "prterun-node001-1@1"}) {
    EXPECT_EQ(refusal(with(slurms(), {{"PMIX_NAMESPACE", name_space}})), ErrorCode::kMissing) << name_space;
  }
  for (const auto* rank : {"8", "", "-7", "7 ", "four"}) {
    EXPECT_EQ(refusal(with(slurms(), {{"PMIX_RANK", rank}})), ErrorCode::kDisagreement) << rank;
  }
}

TEST(PmixGate, ReadsThePortOfAnAddress) {
  EXPECT_EQ(port_of_server("pmix-server.1;tcp4://127.0.0.1:46173"), 46173);
  EXPECT_EQ(port_of_server("pmix-server.1;tcp6://[::1]:9"), 9);
  for (const auto* text : {"", "tcp4", "a;tcp4://127.0.0.1:", "a;tcp4://127.0.0.1:0", "a;tcp4://127.0.0.1:65536",
                           "a;usock:/tmp/x:80", "a;tcp4://127.0.0.1:12x"}) {
    EXPECT_FALSE(port_of_server(text)) << text;
  }
}

}  // namespace
}  // namespace bootstrap
