// The messages of a check: whatever the network makes of them, and whatever others send.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_frame.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bootstrap {
namespace {

// All frames that arrive when the text comes in pieces of `piece` bytes; cut short by the first error.
struct Heard {
  std::vector<Frame> frames;
  bool is_refused = false;
};

Heard hear(std::string_view text, std::size_t piece) {
  Heard heard;
  FrameReader reader;
  while (!text.empty()) {
    auto bytes = text.substr(0, piece);
    text.remove_prefix(bytes.size());
    while (!bytes.empty()) {
      auto frame = reader.take(bytes);
      if (!frame) {
        heard.is_refused = true;
        return heard;
      }
      if (*frame) heard.frames.push_back(**frame);
    }
  }
  return heard;
}

TEST(CheckFrame, ArrivesWholeHoweverItIsCut) {
  const std::vector<Frame> sent{{FrameKind::kHello, "12.0.0 3"},
                                {FrameKind::kClock, "1795297063384356"},
                                {FrameKind::kReport, std::string(kMaxFrameBody, '\n')},
                                {FrameKind::kExchange, ""},
                                {FrameKind::kOutcome, "bootstrap-check hello 3\nabc"},
                                {FrameKind::kVerdict, "0"}};
  std::string text;
  for (const auto& frame : sent) text += write_frame(frame.kind, frame.body);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, text.size()}) {
    const auto heard = hear(text, piece);
    EXPECT_FALSE(heard.is_refused);
    EXPECT_EQ(heard.frames, sent) << piece;
  }
}

TEST(CheckFrame, OthersAreRefusedAtTheFirstByteThatIsWrong) {
  FrameReader reader;
  std::string_view bytes = "GET / HTTP/1.1\r\n";
  EXPECT_FALSE(reader.take(bytes));
  EXPECT_EQ(bytes, "ET / HTTP/1.1\r\n");
  // And stays refused.
  std::string_view right = "bootstrap-check verdict 1\n0";
  EXPECT_FALSE(reader.take(right));
}

TEST(CheckFrame, HeadsThatAreNotOursAreRefused) {
  for (const auto* const text :
       {"bootstrap-check shout 1\n0", "bootstrap-check verdict 16385\n", "bootstrap-check verdict 01\n0",
        "bootstrap-check verdict -1\n", "bootstrap-check verdict \n", "bootstrap-check verdict 1 1\n",
        "bootstrap-check verdict 1\r\n0", "bootstrap-check verdict 99999999999999999999\n", "bootstrap-check\n", "\n",
        "bootstrap-check verdict 1111111111111111111111111111111111111"}) {
    EXPECT_TRUE(hear(text, 1).is_refused) << text;
  }
  // Control: the same way, a right one is heard.
  EXPECT_EQ(hear("bootstrap-check verdict 1\n0", 1).frames, (std::vector<Frame>{{FrameKind::kVerdict, "0"}}));
}

TEST(CheckFrame, HelloNamesStepAndRank) {
  const Hello hello{"12.0.0", 1048575};
  EXPECT_EQ(read_hello(write_hello(hello)), hello);
  for (const auto* const text : {"", "12.0.0", "12.0.0 ", "12.0.0 -1", "12.0.0 01", "12.0.0 1048576", "12.0.0 1 1",
                                 "123456789012345678901234567890123 1"}) {
    EXPECT_FALSE(read_hello(text)) << text;
  }
}

}  // namespace
}  // namespace bootstrap
