// Host lists: the meaning of each form, and refused lists with their reasons.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/host_list.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace bootstrap {
namespace {

using Names = std::vector<std::string>;

// Every expectation below without the mark "23.11" is what `scontrol show hostnames` of Slurm 22.05.8 prints.
struct Accepted {
  std::string_view text;
  Names names;
};

const Accepted kAccepted[] = {
    {"", {}},
    {",, \t,", {}},
    {"login", {"login"}},
    {"a,a", {"a", "a"}},
    {"c,a,b", {"c", "a", "b"}},
    {"gpu-1.rack_2.example.org", {"gpu-1.rack_2.example.org"}},
    {"192.0.2.1,1-2,007", {"192.0.2.1", "1-2", "007"}},
    {" a, b\tc,,d, ", {"a", "b", "c", "d"}},
    {"n[7]", {"n7"}},
    {"n[5-5]", {"n5"}},
    {"n[1-3]", {"n1", "n2", "n3"}},
    {"n[3,1-2,2]", {"n3", "n1", "n2", "n2"}},
    {"[08-10]", {"08", "09", "10"}},
    {"n [1-2]", {"n", "1", "2"}},
    {"n[001-003,7],login", {"n001", "n002", "n003", "n7", "login"}},
    {"n[9-10,011]", {"n9", "n10", "n011"}},
    {"n[8-010]", {"n8", "n9", "n10"}},
    {"n[98-101]", {"n98", "n99", "n100", "n101"}},
    {"n[098-101]", {"n098", "n099", "n100", "n101"}},
    {"n[0,00,000]", {"n0", "n00", "n000"}},
    {"n[00000000000000000000001]", {"n00000000000000000000001"}},
    {"n[4294967295-4294967297]", {"n4294967295", "n4294967296", "n4294967297"}},
    {"n[18446744073709551615]", {"n18446744073709551615"}},
    {"rack[1-2]n[3-4]", {"rack1n3", "rack1n4", "rack2n3", "rack2n4"}},
    {"r[9,010]n[09-10]", {"r9n09", "r9n10", "r010n09", "r010n10"}},
    {"n[1-2][3-4]", {"n13", "n14", "n23", "n24"}},
    {"a[1-2]b[1-2]c[1-2]", {"a1b1c1", "a1b1c2", "a2b1c1", "a2b1c2", "a1b2c1", "a1b2c2", "a2b2c1", "a2b2c2"}},
    {"n[1-2]-ib", {"n1-ib", "n2-ib"}},                                         // 23.11
    {"n[9-10].x,m[1]2", {"n9.x", "n10.x", "m12"}},                             // 23.11
    {"r[1-2]n[3-4]s,t", {"r1n3s", "r1n4s", "r2n3s", "r2n4s", "t"}},            // 23.11
    {"n123456789012345678901234567890", {"n123456789012345678901234567890"}},  // Slurm: n018446744073709551615
};

TEST(HostListParse, MeansWhatSlurmMeans) {
  for (const auto& [text, names] : kAccepted) {
    EXPECT_EQ(*succeeded(parse_host_list(text)), names) << text;
  }
}

struct Refused {
  std::string_view text;
  std::string_view reason;
};

const Refused kRefused[] = {
    {"n[]", R"("" at character 3 is not a number or a range of numbers)"},
    {"n[1,]", R"("" at character 5 is not a number or a range of numbers)"},
    {"n[1,,2]", R"("" at character 5 is not a number or a range of numbers)"},
    {"n[a]", R"("a" at character 3 is not a number or a range of numbers)"},
    {"n[1-]", R"("1-" at character 3 is not a number or a range of numbers)"},
    {"n[-3]", R"("-3" at character 3 is not a number or a range of numbers)"},
    {"n[1-2-3]", R"("1-2-3" at character 3 is not a number or a range of numbers)"},
    {"n[1--2]", R"("1--2" at character 3 is not a number or a range of numbers)"},
    {"n[+1]", R"("+1" at character 3 is not a number or a range of numbers)"},
    {"n[0x10]", R"("0x10" at character 3 is not a number or a range of numbers)"},
    {"n[1, 2]", R"(" 2" at character 5 is not a number or a range of numbers)"},
    {"n[1][1][1][1][1][1][1][1][1]", R"("n[1][1][1][1][1][1][1][1]" at character 1 has more than 8 brackets)"},
    {"n[1 ]", R"("1 " at character 3 is not a number or a range of numbers)"},
    {"n[[1]]", R"("[1" at character 3 is not a number or a range of numbers)"},
    {"a,n[5-3]", R"("5-3" at character 5 counts down)"},
    {"n[010-9]", R"("010-9" at character 3 counts down)"},
    {"n[18446744073709551616]", R"("18446744073709551616" at character 3 holds a number of more than 64 bits)"},
    {"n[1", R"("[1" at character 2 is not closed by ']')"},
    {"n[", R"("[" at character 2 is not closed by ']')"},
    {"n[1-", R"("[1-" at character 2 is not closed by ']')"},
    {"n[1,2-3", R"(",2-3" at character 4 is not closed by ']')"},
    {"n1]", R"("]" at character 3 closes a bracket that is not open)"},
    {"n[1]]", R"("]" at character 5 closes a bracket that is not open)"},
    {"(null)", R"("(" at character 1 cannot be part of a host name)"},
    {"a,b\x01", R"("\x01" at character 4 cannot be part of a host name)"},
    {"a\nb", R"("\x0a" at character 2 cannot be part of a host name)"},
    {"a\r", R"("\x0d" at character 2 cannot be part of a host name)"},
    {std::string_view("a\0b", 3), R"("\x00" at character 2 cannot be part of a host name)"},
    {"n\xc3\xa9", R"("\xc3" at character 2 cannot be part of a host name)"},
};

TEST(HostListParse, RefusesMalformedTextAndNamesThePlace) {
  for (const auto& [text, reason] : kRefused) {
    const auto list = parse_host_list(text);
    ASSERT_FALSE(list) << text;
    EXPECT_EQ(list.error().code, ErrorCode::kInvalid) << text;
    EXPECT_EQ(list.error().message, "cannot read the host list: " + std::string(reason));
  }
}

TEST(HostListParse, AcceptsTheLargestNumberOfHostsAndNoMore) {
  for (const auto* const text : {"n[1-65536]", "a,n[2-65536]", "a[1-256]b[1-256]", "n[1-65535],a"}) {
    EXPECT_EQ(succeeded(parse_host_list(text))->size(), kMaxNodes) << text;
  }
  for (const auto* const text :
       {"n[1-65537]", "a,n[1-65536]", "n[1-65536],a", "n[1-65536,5]", "a[1-256]b[1-256],c", "a[1-256]b[1-257]",
        "a[1-65536]b[1-65536]c[1-65536]d[1-65536]", "n[0-18446744073709551615]", "n[1-18446744073709551615,0]"}) {
    const auto list = parse_host_list(text);
    ASSERT_FALSE(list) << text;
    EXPECT_EQ(list.error().code, ErrorCode::kLimit) << list.error().message;
  }
  EXPECT_EQ(parse_host_list("n[1-3]", 3)->size(), 3U);
  EXPECT_EQ(parse_host_list("n[1-4]", 3).error().message,
            "cannot read the host list: \"n[1-4\" at character 1 names more than 3 hosts");
}

TEST(HostListParse, AcceptsTheLongestNameAndNoLonger) {
  const auto longest = std::string(kMaxNodeName, 'a');
  const auto almost = longest.substr(2);
  const auto zeros = std::string(kMaxNodeName, '0');
  for (const auto& text : {longest, almost + "[1-99]", "[98-99]" + almost, zeros, "[" + zeros + "]"}) {
    EXPECT_EQ(succeeded(parse_host_list(text))->back().size(), kMaxNodeName);
  }
  for (const auto& text :
       {longest + 'a', almost + "[1-100]", "[99-100]" + almost, "[0" + zeros + "]", longest + "[1]"}) {
    const auto list = parse_host_list("b," + text);
    ASSERT_FALSE(list) << text;
    EXPECT_EQ(list.error().code, ErrorCode::kLimit);
    EXPECT_NE(list.error().message.find("at character 3 begins a name of more than 255"), std::string::npos)
        << list.error().message;
  }
}

TEST(HostListParse, ReadsEachPieceOfAList) {
  const std::string_view text = " a,n[08-10,7]x[1-2]-ib,c[18446744073709551615] ,d";
  for (std::size_t begin = 0; begin <= text.size(); ++begin) {
    for (std::size_t size = 0; begin + size <= text.size(); ++size) (void)parse_host_list(text.substr(begin, size));
  }
}

}  // namespace
}  // namespace bootstrap
