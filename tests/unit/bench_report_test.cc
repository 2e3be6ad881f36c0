// Sizes and bandwidths of a bench, the records that its ranks exchange, and its table and sentences.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/util/records.h"
#include "exchange_double.h"

namespace bootstrap {
namespace {

BenchFinding timed(double microseconds, std::uint32_t ranks = 4) {
  return {.microseconds = microseconds,
          .more = 0,
          .ranks = ranks,
          .wrong = 0,
          .first = {},
          .is_late = false,
          .trouble = {}};
}

TEST(BenchReport, RecordsSurviveTheWay) {
  const BenchMember member{BenchMember::Gpu::kThere, "NVIDIA\tH200\n", 22809, "/usr/lib/libnccl.so.2", "none"};
  const std::string member_text = "2\tNVIDIA?H200?\t22809\t/usr/lib/libnccl.so.2\tnone\t";
  EXPECT_EQ(write_record(member), member_text) << "no text can be taken for two";
  EXPECT_EQ(write_record(read_record<BenchMember>(member_text).value()), member_text);
  auto finding = timed(1.0 / 3);
  finding.more = 1e-9;
  finding.wrong = std::numeric_limits<std::uint64_t>::max();
  finding.first = {.is_in_place = true, .index = 17, .found = std::nan(""), .expected = 13.5F};
  finding.trouble = "it went wrong";
  finding.is_late = true;
  const std::string text = "0.3333333333333333\t1e-09\t4\t18446744073709551615\t1\t17\tnan\t13.5\t1\tit went wrong\t";
  EXPECT_EQ(write_record(finding), text);
  EXPECT_EQ(write_record(read_record<BenchFinding>(text).value()), text);
}

TEST(BenchReport, TheSlowestRankCounts) {
  auto findings = std::vector{timed(10), timed(40, 2), timed(20)};
  findings[0].wrong = 2;
  findings[2].wrong = 3;
  const auto row = row_of(4000000, findings);
  EXPECT_DOUBLE_EQ(row.microseconds, 40);
  EXPECT_DOUBLE_EQ(row.algorithm, 100);
  EXPECT_DOUBLE_EQ(row.bus, 100) << "of its own communicator of two";
  EXPECT_EQ(row.wrong, 5U);
  EXPECT_DOUBLE_EQ(average_bus({row, {.bytes = 8, .microseconds = 1, .algorithm = 1, .bus = 50, .wrong = 0}}), 75);
  EXPECT_DOUBLE_EQ(average_bus({}), 0);
}

TEST(BenchReport, SentencesNameRankAndSize) {
  const auto layout = layout_of({2, 2});
  std::vector<BenchFinding> findings(4, timed(1));
  EXPECT_FALSE(trouble_of(layout, findings));
  EXPECT_EQ(wrong_text(layout, 1024, findings), "");
  findings[3].wrong = 5;
  findings[3].first = {.is_in_place = true, .index = 17, .found = 12, .expected = 13};
  EXPECT_EQ(
      wrong_text(layout, 1024, findings),
      "an all-reduce of 1 KiB gave wrong sums on rank 3 (node002, local rank 1): 5 values on rank 3, the first is "
      "number 17 of 256, 12 where the sum is 13 (in place)");
  findings[1].trouble = "no";
  EXPECT_EQ(trouble_of(layout, findings), "rank 1 (node001, local rank 1): no");
  findings[2].trouble = "neither";
  EXPECT_EQ(trouble_of(layout, findings), "rank 1 (node001, local rank 1) and 1 more: no");
  findings[1].is_late = true;
  EXPECT_EQ(trouble_of(layout, findings), "rank 2 (node002, local rank 0): neither") << "who waited for it knows less";
  findings[2].is_late = true;
  EXPECT_EQ(trouble_of(layout, findings), "rank 1 (node001, local rank 1) and 1 more: no");
}

BenchStage stage_of_four() {
  BenchStage stage;
  stage.step = "12.0";
  stage.ranks = 4;
  stage.nodes = 2;
  stage.fewest = 1;
  stage.most = 3;
  stage.gpus = {"NVIDIA H200", "NVIDIA H200", "NVIDIA \"L4\"", "NVIDIA H200"};
  stage.nccl_version = "2.28.9";
  stage.nccl_path = "/lib/libnccl.so.2";
  stage.id_ms = 12.34;
  stage.comm_ms = 845;
  return stage;
}

BenchPlan short_plan() {
  BenchPlan plan;
  plan.group = GroupKind::kNode;
  plan.task.warmup = 1;
  return plan;
}

TEST(BenchReport, TheTable) {
  EXPECT_EQ(head_text(stage_of_four(), short_plan()),
            "StepId=12.0: all-reduce: 4 ranks on 2 nodes, communicator node of 1 to 3 ranks\n"
            "3 x NVIDIA H200, 1 x NVIDIA \"L4\"; NCCL 2.28.9 (/lib/libnccl.so.2)\n"
            "unique ids in 12.3 ms, communicator in 845.0 ms more; out of place, 1 warm-up and 20 iterations of each "
            "size, sums verified\n\n"
            "       BYTES       COUNT   TYPE      TIME us   ALGBW GB/s  BUSBW GB/s  #WRONG\n");
  const BenchRow row{.bytes = 1024, .microseconds = 12.345, .algorithm = 0.5, .bus = 0.75, .wrong = 2};
  EXPECT_EQ(row_text(row, true), "        1024         256  float        12.35        0.500       0.750       2\n");
  EXPECT_EQ(row_text(row, false), "        1024         256  float        12.35        0.500       0.750       -\n")
      << "what was not looked at is not right either";
  EXPECT_EQ(foot_text({row}), "\naverage busbw 0.750 GB/s\n");
}

TEST(BenchReport, Json) {
  const BenchRow row{.bytes = 8, .microseconds = 2.5, .algorithm = 0.0032, .bus = 0.0048, .wrong = 0};
  const auto text = bench_json(stage_of_four(), short_plan(), {row});
  EXPECT_NE(text.find("\"NVIDIA \\\"L4\\\"\""), std::string::npos);
  EXPECT_NE(
      text.find("{\"bytes\": 8, \"count\": 2, \"type\": \"float\", \"time_us\": 2.500000, \"algbw_gbs\": 0.003200, "
                "\"busbw_gbs\": 0.004800, \"wrong\": 0}"),
      std::string::npos)
      << text;
  auto unchecked = short_plan();
  unchecked.task.is_checked = false;
  EXPECT_NE(bench_json(stage_of_four(), unchecked, {row}).find("\"wrong\": null"), std::string::npos);
}

std::string refusal(std::string_view text) {
  const auto bytes = parse_bytes("--min-bytes", text);
  return bytes ? "" : bytes.error().message;
}

TEST(Bandwidth, BytesHaveUnits) {
  EXPECT_EQ(parse_bytes("-", "8"), 8U);
  EXPECT_EQ(parse_bytes("-", "0"), 0U);
  EXPECT_EQ(parse_bytes("-", "64K"), 65536U);
  EXPECT_EQ(parse_bytes("-", "128M"), 134217728U);
  EXPECT_EQ(parse_bytes("-", "128m"), 134217728U);
  EXPECT_EQ(parse_bytes("-", "4G"), 4294967296U) << "beyond 32 bits";
  EXPECT_EQ(parse_bytes("-", "1024G"), std::uint64_t{1} << 40);
}

TEST(Bandwidth, WhatIsNoSizeIsRefusedByName) {
  EXPECT_EQ(refusal("x"), "--min-bytes is \"x\"; it takes bytes, such as 8, 64K, 128M or 4G, 1024G at most");
  for (const char* const text :
       {"", "K", "-8", "+8", "8 K", "1.5M", "8KB", "8T", "1025G", "99999999999999999999", "0x8", "17179869184G"}) {
    EXPECT_NE(refusal(text), "") << text;
  }
}

TEST(Bandwidth, BytesInWords) {
  EXPECT_EQ(bytes_text(8), "8 bytes");
  EXPECT_EQ(bytes_text(1024), "1 KiB");
  EXPECT_EQ(bytes_text(1536), "1536 bytes") << "exact, not rounded";
  EXPECT_EQ(bytes_text(std::uint64_t{128} << 20), "128 MiB");
  EXPECT_EQ(bytes_text(std::uint64_t{2048} << 30), "2048 GiB");
  EXPECT_EQ(bytes_text(0), "0 bytes");
}

TEST(Bandwidth, SizesGrowByTheFactorUpToTheMost) {
  using Sizes = std::vector<std::uint64_t>;
  EXPECT_EQ(sizes_of({.least = 8, .most = 64, .factor = 2}), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sizes_of({.least = 8, .most = 65, .factor = 2}), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sizes_of({.least = 12, .most = 1000, .factor = 10}), (Sizes{12, 120}));
  EXPECT_EQ(sizes_of({.least = 4, .most = 4, .factor = 1000000}), (Sizes{4}));
  EXPECT_FALSE(sizes_of({.least = 0}));
  EXPECT_EQ(sizes_of({})->size(), 25U) << "8 bytes to 128 MiB";
  constexpr auto kMost = std::uint64_t{1} << 40;
  EXPECT_EQ(sizes_of({.least = 4, .most = kMost, .factor = kMost})->size(), 1U) << "no overflow";
}

// 1 GB in 10 ms is 100 GB/s; 8 ranks move 2 * 7/8 of the buffer over each link, so 175 GB/s.
TEST(Bandwidth, AsNcclTestsDefinesIt) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(1000000000, 10000), 100);
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000000000, 10000, 8), 175);
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000000000, 10000, 2), 100) << "two ranks: the same as algbw";
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000000000, 10000, 4), 150);
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000000000, 10000, 1), 0) << "nothing goes over any link";
  EXPECT_DOUBLE_EQ(bus_bandwidth(8, 0, 4), 0) << "no time, no bandwidth";
  EXPECT_NEAR(bus_bandwidth(1000000000, 10000, 1000000), 200, 0.001);
}

}  // namespace
}  // namespace bootstrap
