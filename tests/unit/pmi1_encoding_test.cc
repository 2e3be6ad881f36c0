// Bytes of any kind and length go through PMI-1's short values of printable characters.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/exchanged_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace bootstrap {
namespace {

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

}  // namespace
}  // namespace bootstrap
