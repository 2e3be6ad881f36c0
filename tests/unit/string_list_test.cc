// Lists of byte strings come back whole, or not at all.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/records.h"

#include <gtest/gtest.h>

namespace bootstrap {
namespace {

TEST(StringList, ComesBackWhole) {
  using Strings = std::vector<std::string>;
  for (const Strings& strings :
       {Strings{}, Strings{""}, Strings{"a", "", std::string("\0\n", 2), "long enough for a heap"}}) {
    EXPECT_EQ(decode_strings(encode_strings(strings)), strings);
  }
}

TEST(StringList, IsRefusedWhereItIsCut) {
  const auto whole = encode_strings({"node001"});
  for (std::size_t size = 1; size < whole.size(); ++size) EXPECT_FALSE(decode_strings(whole.substr(0, size))) << size;
}

}  // namespace
}  // namespace bootstrap
