// The report of a rank is read as it was written, and other texts are refused.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_report.h"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>
#include <type_traits>

#include "core/util/text.h"
#include "tools/check/check_meeting.h"

namespace bootstrap {
namespace {

// No member has its default.
struct Fill {
  std::size_t count = 0;
  void operator()(std::string& text) { text = cat({"text ", std::to_string(++count)}); }
  void operator()(std::vector<std::string>& items) { items = {cat({"/dev/nvidia", std::to_string(++count)}), "more"}; }
  template <class Value>
  void operator()(Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      value = Value::kLast;
    } else {
      value = std::numeric_limits<Value>::max();
    }
  }
};

void fill(CheckReport& report, auto visit) {
  std::apply([&](auto&... members) { (visit(members), ...); }, fields_of(report));
}

CheckReport full_report() {
  CheckReport report;
  fill(report, Fill());
  report.rank = 3;
  report.port = 29500;
  return report;
}

TEST(CheckReport, IsReadAsItWasWritten) {
  EXPECT_EQ(read_record<CheckReport>(write_record(full_report())), full_report());
  EXPECT_EQ(read_record<CheckReport>(write_record(CheckReport())), CheckReport());
}

TEST(CheckReport, ControlCharactersAreNotSent) {
  auto report = full_report();
  report.host = "node\x1b[2J\n=\t\xc3\xa4";
  report.gpu_list = {"one two"};
  const auto read = read_record<CheckReport>(write_record(report));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->host, "node?[2J?=???");
  EXPECT_EQ(read->gpu_list, std::vector<std::string>{"one?two"});
}

TEST(CheckReport, TheLargestOneFitsIntoALine) {
  struct Longest : Fill {
    using Fill::operator();
    void operator()(std::string& text) { text.assign(100'000, 'x'); }
    void operator()(std::vector<std::string>& items) { items.assign(10'000, "/dev/nvidia0"); }
  };
  CheckReport report;
  fill(report, Longest());
  const auto text = write_record(report);
  EXPECT_LE(text.size() + std::string_view("report \n").size(), kMaxLine);
  EXPECT_GT(text.size(), kMaxLine / 2);  // control: the texts are long
  EXPECT_TRUE(read_record<CheckReport>(text));
}

TEST(CheckReport, OtherTextsAreRefused) {
  const auto text = write_record(full_report());
  EXPECT_FALSE(read_record<CheckReport>(""));
  EXPECT_FALSE(read_record<CheckReport>(text + "1\t"));
  EXPECT_FALSE(read_record<CheckReport>(text + "\t"));
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(read_record<CheckReport>(text.substr(0, length)));
  }
  const auto with = [&](std::string_view from, std::string_view to) {
    auto changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return read_record<CheckReport>(changed).has_value();
  };
  EXPECT_TRUE(with("\t29500\t", "\t65535\t"));  // control
  EXPECT_FALSE(with("\t29500\t", "\t65536\t"));
  EXPECT_FALSE(with("\t29500\t", "\t-1\t"));
  EXPECT_FALSE(with("\t29500\t", "\t\t"));
  EXPECT_FALSE(with("\ttext 1\t", "\ttext\n1\t"));
  EXPECT_FALSE(with(" more\t", "  more\t"));
  EXPECT_FALSE(with("\t1\t", "\t2\t")) << "a bool";
}

}  // namespace
}  // namespace bootstrap
