// What ranks exchange: values with their tags, in pieces for PMI-1, and NCCL's rule which rank makes which unique id.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/exchanged_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace bootstrap {
namespace {

const CallTag kTag{{12, 3, 1}, 41, "communicator of the node"};

TEST(TaggedValue, ComesBackAsItWas) {
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
  for (const auto* other : {"bootstrap2 1.2.3 4 x\n", "bootstrap1 1.2 4 x\n", "bootstrap1 1.2.3.4 4 x\n",
                            "bootstrap1 1.2.3 -4 x\n", "bootstrap1 4294967296.2.3 4 x\n", "\n", "   \n"}) {
    EXPECT_FALSE(decode_tagged_value(other)) << other;
  }
}

TEST(TaggedValue, IsDescribedByWhatItIsFor) {
  EXPECT_EQ(describe(kTag), "'communicator of the node' as its call number 42");
}

bool fits(const std::string& piece) {
  return piece.size() < kMaxPmiValue &&
         std::all_of(piece.begin(), piece.end(), [](char letter) { return letter > ' ' && letter < 127; });
}

TEST(PmiPieces, CarryBytesOfEachLength) {
  std::mt19937 random(11);
  for (std::size_t size : {0U, 1U, 2U, 3U, 4U, 128U, 749U, 750U, 751U, 1499U, 1500U, 1501U, 65536U}) {
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

TEST(PmiPieces, AreRefusedWhereTheyAreNot) {
  for (const char* text : {"", "x", ":AA", "0:", "-1:AA", "99999999999:AA", "1;AA"}) {
    EXPECT_FALSE(count_pmi_pieces(text)) << text;
  }
  EXPECT_FALSE(from_pmi_pieces({}));
  EXPECT_FALSE(from_pmi_pieces({"1:A A"}));
  EXPECT_FALSE(from_pmi_pieces({"2:AA"}));
}

// Deals the ranks out one after the other: a root takes its fair share of what is left, rounded up. For the first
// ranks % roots of them that is one more than for the others.
class Walk {
 public:
  Walk(std::uint32_t ranks, std::uint32_t roots) : ranks_left_(ranks), roots_left_(roots) { take_share(); }

  std::uint32_t root() const { return root_; }
  bool at_first_rank() const { return taken_ == 0; }

  void next_rank() {
    if (++taken_ < share_) return;
    ranks_left_ -= share_;
    --roots_left_;
    ++root_;
    taken_ = 0;
    if (roots_left_ > 0) take_share();
  }

 private:
  void take_share() { share_ = (ranks_left_ + roots_left_ - 1) / roots_left_; }

  std::uint32_t ranks_left_;
  std::uint32_t roots_left_;
  std::uint32_t root_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t share_ = 0;
};

using RankOfRoot = std::uint32_t (*)(std::uint32_t root, std::uint32_t ranks, std::uint32_t roots);

// Returns the first root whose first rank is wrong by `rule`, "" if none is. Comparing costs less than EXPECT_EQ.
std::string first_difference(std::uint32_t ranks, std::uint32_t roots, RankOfRoot rule) {
  Walk walk(ranks, roots);
  for (std::uint32_t rank = 0; rank < ranks; ++rank, walk.next_rank()) {
    if (!walk.at_first_rank() || rule(walk.root(), ranks, roots) == rank) continue;
    return "root " + std::to_string(walk.root()) + " of " + std::to_string(roots) + " for " + std::to_string(ranks) +
           " ranks: not rank " + std::to_string(rank);
  }
  return walk.root() == roots ? "" : "the walk gave ranks to " + std::to_string(walk.root()) + " roots";
}

// 2.9 billion ranks: all sizes where the compiler optimises, every 17th where it does not (sanitizers, coverage).
TEST(Roots, AgreeWithTheWalkForAllSizes) {
#ifdef __OPTIMIZE__
  constexpr std::uint32_t kStep = 1;
#else
  constexpr std::uint32_t kStep = 17;
#endif
  constexpr std::uint32_t kMost = 2048;
  for (std::uint32_t ranks = 1; ranks <= kMost; ranks += kStep) {
    for (std::uint32_t roots = 1; roots <= ranks; ++roots) {
      const auto difference = first_difference(ranks, roots, rank_of_root);
      ASSERT_EQ(difference, "");
    }
  }
}

// Control: rules that look right and are not. Each agrees with NCCL's if the ranks divide evenly.
TEST(Roots, TheWalkFindsRulesThatDiffer) {
  const RankOfRoot rounded_down = [](std::uint32_t root, std::uint32_t ranks, std::uint32_t roots) {
    return static_cast<std::uint32_t>((std::uint64_t{root} * ranks + roots - 1) / roots);
  };
  const RankOfRoot blocks = [](std::uint32_t root, std::uint32_t ranks, std::uint32_t roots) {
    return root * ((ranks + roots - 1) / roots);
  };
  for (const auto rule : {rounded_down, blocks}) {
    EXPECT_EQ(first_difference(12, 3, rule), "");
    EXPECT_NE(first_difference(10, 4, rule), "");
  }
}

// From NCCL's documentation of ncclCommInitRankScalable: 10 ranks and 4 roots are runs of 3, 3, 2 and 2.
TEST(Roots, DealsLongerRunsFirst) {
  const std::uint32_t first_ranks[] = {0, 3, 6, 8};
  for (std::uint32_t root = 0; root < 4; ++root) EXPECT_EQ(rank_of_root(root, 10, 4), first_ranks[root]);
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

}  // namespace
}  // namespace bootstrap
