// The label on what a rank puts into the PMIx store: read back exactly, and nothing else taken for one.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/exchanged_values.h"

#include <gtest/gtest.h>

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

TEST(TaggedValue, RefusesWhatIsNone) {
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

}  // namespace
}  // namespace bootstrap
