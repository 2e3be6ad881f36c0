// What a rank reports comes back from its text, and nothing else does.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_report.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/util/text.h"

namespace bootstrap {
namespace {

// No member is at its default, so that one that is forgotten on the way shows.
CheckReport full_report() {
  CheckReport report;
  report.step_tag = "12.0.0";
  report.rank = 3;
  report.host = "node002";
  report.address = "node001";
  report.port = 29500;
  report.size = 4;
  report.layout = 0xfedcba98U;
  report.set_by = SetBy::kPreload;
  report.has_plan = true;
  report.plan_trouble = "RANK is \"7\" in this process, not \"3\"";
  report.reach = Reach::kForeign;
  report.reach_trouble = "Connection refused";
  report.target = "10.1.0.1";
  report.interface = "ib0";
  report.round_trip_us = 210;
  report.clock_offset_us = -1'500'000;
  report.clock_error_us = 105;
  report.has_pmix = true;
  report.pmix_client = "libpmix.so.2 4.2.2";
  report.pmix_server = "4.2.2rc2";
  report.pmix_trouble = "a=b";
  report.nccl_version = "2.28.9";
  report.nccl_path = "/usr/lib/libnccl.so.2";
  report.nccl_trouble = "too old";
  report.cuda_version = "13.0";
  report.cuda_module = "580.65.06";
  report.openmp_threads = "4";
  report.has_gpus = true;
  report.is_nvidia = true;
  report.may_share_gpus = true;
  report.leaves_gpus = true;
  report.gpus_on_node = 2;
  report.gpu_list = {"/dev/nvidia0", "/dev/nvidia1"};
  report.own_gpu = "/dev/nvidia1";
  report.open_gpus = {"/dev/nvidia0", "/dev/nvidia1"};
  report.closed_gpus = {"/dev/nvidia2"};
  report.gpu_cure = "--gpu-bind=none";
  report.cpus = "0-3,8";
  report.cpu_count = 5;
  report.cpus_on_node = 16;
  report.shm_free = std::uint64_t{12} << 30;
  report.locked_memory = std::numeric_limits<std::uint64_t>::max();
  report.rdma_devices = 2;
  report.kernel = "Linux 6.1.0";
  report.libc = "glibc 2.36";
  return report;
}

TEST(CheckReport, ComesBackFromItsText) {
  EXPECT_EQ(read_report(write_report(full_report())), full_report());
  EXPECT_EQ(read_report(write_report(CheckReport())), CheckReport());
}

TEST(CheckReport, EveryMemberIsWritten) {
  // A line that both reports share stands for a member that full_report() forgets to set.
  const auto full = write_report(full_report());
  const auto empty = write_report(CheckReport());
  const auto full_lines = split(full, '\n');
  const auto empty_lines = split(empty, '\n');
  ASSERT_EQ(full_lines.size(), empty_lines.size());
  for (std::size_t i = 0; i + 1 < full_lines.size(); ++i) EXPECT_NE(full_lines[i], empty_lines[i]);
}

TEST(CheckReport, BytesThatMoveACursorDoNotTravel) {
  auto report = full_report();
  report.host = "node\x1b[2J\n=\xc3\xa4";
  report.gpu_list = {"one two"};
  const auto read = read_report(write_report(report));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->host, "node?[2J?=??");
  EXPECT_EQ(read->gpu_list, std::vector<std::string>{"one?two"});
}

TEST(CheckReport, TheLargestOneFitsIntoAFrame) {
  auto report = full_report();
  const std::string endless(100'000, 'x');
  for (auto* const text : {&report.step_tag,      &report.host,         &report.address,      &report.plan_trouble,
                           &report.reach_trouble, &report.target,       &report.interface,    &report.pmix_client,
                           &report.pmix_server,   &report.pmix_trouble, &report.nccl_version, &report.nccl_path,
                           &report.nccl_trouble,  &report.cuda_version, &report.cuda_module,  &report.openmp_threads,
                           &report.own_gpu,       &report.gpu_cure,     &report.cpus,         &report.kernel,
                           &report.libc}) {
    *text = endless;
  }
  const std::vector<std::string> many(10'000, "/dev/nvidia0");
  report.gpu_list = report.open_gpus = report.closed_gpus = many;
  const auto text = write_report(report);
  EXPECT_LE(text.size(), kMaxFrameBody);
  EXPECT_GT(text.size(), kMaxFrameBody / 2);  // the test would notice if the texts were not long
  EXPECT_TRUE(read_report(text));
}

TEST(CheckReport, OtherTextsAreRefused) {
  const auto text = write_report(full_report());
  EXPECT_FALSE(read_report(""));
  EXPECT_FALSE(read_report(text + "more=1\n"));
  EXPECT_FALSE(read_report(text + "\n"));
  for (std::size_t length = 0; length < text.size(); ++length) EXPECT_FALSE(read_report(text.substr(0, length)));
  const auto with = [&](std::string_view from, std::string_view to) {
    auto changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return read_report(changed).has_value();
  };
  EXPECT_TRUE(with("port=29500", "port=65535"));  // control
  EXPECT_FALSE(with("port=29500", "port=65536"));
  EXPECT_FALSE(with("port=29500", "port=-1"));
  EXPECT_FALSE(with("port=29500", "port=029500"));
  EXPECT_FALSE(with("port=29500", "port="));
  EXPECT_FALSE(with("port=29500", "sport=29500"));
  EXPECT_FALSE(with("reach=5", "reach=6"));
  EXPECT_FALSE(with("set_by=2", "set_by=3"));
  EXPECT_FALSE(with("has_pmix=1", "has_pmix=2"));
  EXPECT_FALSE(with("clock_offset_us=-1500000", "clock_offset_us=-0"));
  EXPECT_FALSE(with("clock_offset_us=-1500000", "clock_offset_us=--1"));
  EXPECT_FALSE(with("interface=ib0", "interface=i\tb"));
  EXPECT_FALSE(with("gpu_list=/dev/nvidia0 ", "gpu_list=/dev/nvidia0  "));
}

TEST(CheckOutcome, ComesBackFromItsText) {
  const ExchangeOutcome outcome{12'345, "rank 1 did not come"};
  EXPECT_EQ(read_outcome(write_outcome(outcome)), outcome);
  EXPECT_FALSE(read_outcome("took_us=1\n"));
  EXPECT_FALSE(read_outcome("took_us=x\ntrouble=\n"));
}

}  // namespace
}  // namespace bootstrap
