// The small text functions, with inputs at which such functions often fail.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/util/records.h"

namespace bootstrap {
namespace {

TEST(Cat, JoinsInOrder) {
  EXPECT_EQ(cat({}), "");
  EXPECT_EQ(cat({"a", "", "bc", std::string_view("\0d", 2)}), std::string("abc\0d", 5));
}

TEST(Join, PutsTheSeparatorBetween) {
  EXPECT_EQ(join(std::vector<std::string>{}, ","), "");
  EXPECT_EQ(join(std::vector<std::string>{"", "a", ""}, ", "), ", a, ");
  EXPECT_EQ(join(std::vector<int>{3, 1}, " "), "3 1");
}

TEST(Split, KeepsEmptyParts) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("", ','), (Parts{""}));
  EXPECT_EQ(split(",", ','), (Parts{"", ""}));
  EXPECT_EQ(split("a,,b", ','), (Parts{"a", "", "b"}));
  EXPECT_EQ(split("a b", ','), (Parts{"a b"}));
  EXPECT_EQ(split("a:b:", ':'), (Parts{"a", "b", ""}));
}

TEST(ParseUnsigned, TakesDecimalDigitsOnly) {
  EXPECT_EQ(parse_unsigned("0"), 0U);
  EXPECT_EQ(parse_unsigned("007"), 7U);
  EXPECT_EQ(parse_unsigned("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(parse_unsigned(std::string(300, '0') + "9"), 9U);
  for (const auto* const text : {"", " 1", "1 ", "+1", "-1", "-0", "0x10", "1e3", "1.", "1,2", "a", "1\n"}) {
    EXPECT_EQ(parse_unsigned(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_unsigned(std::string_view("1\0", 2)), std::nullopt);
}

TEST(ParseUnsigned, NeverWrapsAround) {
  EXPECT_EQ(parse_unsigned("18446744073709551616"), std::nullopt);
  EXPECT_EQ(parse_unsigned("99999999999999999999999"), std::nullopt);
  EXPECT_EQ(parse_unsigned("65535", 65535), 65535U);
  EXPECT_EQ(parse_unsigned("65536", 65535), std::nullopt);
  EXPECT_EQ(parse_unsigned("0", 0), 0U);
}

TEST(Trim, TakesSpacesAndTabsFromBothEndsOnly) {
  EXPECT_EQ(trim(""), "");
  EXPECT_EQ(trim(" \t "), "");
  EXPECT_EQ(trim("\t a b \t"), "a b");
  EXPECT_EQ(trim("\na\n"), "\na\n");
}

TEST(Quoted, ShowsEveryByteSafely) {
  EXPECT_EQ(quote(""), R"("")");
  EXPECT_EQ(quote("node[1-3], x"), R"("node[1-3], x")");
  EXPECT_EQ(quote("a\"b\\c"), R"("a\x22b\x5cc")");
  EXPECT_EQ(quote("\x1b[31m\n\x7f\xc3\xa9"), R"("\x1b[31m\x0a\x7f\xc3\xa9")");
  EXPECT_EQ(quote(std::string_view("\0", 1)), R"("\x00")");
}

TEST(Quoted, ShortensLongText) {
  EXPECT_EQ(quote("abcd", 4), R"("abcd")");
  EXPECT_EQ(quote("abcde", 4), R"("abcd...")");
  EXPECT_EQ(quote("a", 0), R"("...")");
  EXPECT_EQ(bootstrap::quote(std::string(81, 'a')), '"' + std::string(80, 'a') + "...\"");
}

TEST(Printable, ChangesNothingThatIsPlain) {
  EXPECT_EQ(printable("a \"b\" \\c"), "a \"b\" \\c");
  EXPECT_EQ(printable("a\nb"), R"("a\x0ab")");
  EXPECT_EQ(printable("\xc2\x9b"), R"("\xc2\x9b")");
  EXPECT_EQ(printable("\x7f"), R"("\x7f")");
}

TEST(Wrapped, BreaksBetweenWordsWhereALineIsFull) {
  const std::string fits(72, 'a');
  const std::string too_long(73, 'a');
  const std::pair<std::string, std::string> rows[] = {
      {"", "label\n"},
      {"a b", "label   a b\n"},
      {fits + " b", "label   " + fits + "\n        b\n"},
      {too_long, "label   " + too_long + "\n"},
      {"a " + too_long, "label   a\n        " + too_long + "\n"},
  };
  for (const auto& [text, lines] : rows) {
    std::string out;
    append_wrapped(out, "label", 8, text);
    EXPECT_EQ(out, lines) << text;
  }
}

TEST(Fingerprint, IsFnv1a) {  // the published test vectors of 32-bit FNV-1a
  EXPECT_EQ(fingerprint(""), 0x811c9dc5U);
  EXPECT_EQ(fingerprint("a"), 0xe40c292cU);
  EXPECT_EQ(fingerprint("foobar"), 0xbf9cf968U);
}

TEST(StringList, IsReadAsItWasWritten) {
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

TEST(Ranges, AreShort) {
  EXPECT_EQ(write_ranges({}), "");
  EXPECT_EQ(write_ranges({7}), "7");
  EXPECT_EQ(write_ranges({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(write_ranges({0, 2, 4, 5}), "0,2,4-5");
}

}  // namespace
}  // namespace bootstrap
