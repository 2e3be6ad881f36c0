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
  report.clock_skew_us = 1'500'000;
  report.clock_error_us = 105;
  report.has_exchanged = true;
  report.exchange_us = 14'000;
  report.exchange_trouble = "rank 1 did not come";
  report.lacks_exchange = true;
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
  report.gpu_hint = "--gpu-bind=none";
  report.version = "0.1.0";
  report.library = "0.1.1";
  report.sees_plugstack = true;
  report.plugin = "0.1.2";
  report.plugin_slurm = "23.11.4";
  report.plugin_trouble = "No such file or directory";
  report.slurm = "23.11.5";
  report.python = "3.11.2 (/usr/bin/python3)";
  report.frameworks = "torch 2.6.0, mpi4py 4.0.3";
  report.python_nccl = "2.21.5";
  report.python_nccl_path = "/opt/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2";
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
  EXPECT_EQ(read_record<CheckReport>(write_record(full_report())), full_report());
  EXPECT_EQ(read_record<CheckReport>(write_record(CheckReport())), CheckReport());
}

TEST(CheckReport, EveryMemberIsWritten) {
  // A field that both reports share stands for a member that full_report() forgets to set.
  const auto full = write_record(full_report());
  const auto empty = write_record(CheckReport());
  const auto full_fields = split(full, '\t');
  const auto empty_fields = split(empty, '\t');
  ASSERT_EQ(full_fields.size(), empty_fields.size());
  for (std::size_t i = 0; i + 1 < full_fields.size(); ++i) EXPECT_NE(full_fields[i], empty_fields[i]) << i;
}

TEST(CheckReport, BytesThatMoveACursorDoNotTravel) {
  auto report = full_report();
  report.host = "node\x1b[2J\n=\t\xc3\xa4";
  report.gpu_list = {"one two"};
  const auto read = read_record<CheckReport>(write_record(report));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->host, "node?[2J?=???");
  EXPECT_EQ(read->gpu_list, std::vector<std::string>{"one?two"});
}

TEST(CheckReport, TheLargestOneFitsIntoALine) {
  auto report = full_report();
  const std::string endless(100'000, 'x');
  for (auto* const text : {&report.host,
                           &report.address,
                           &report.plan_trouble,
                           &report.reach_trouble,
                           &report.target,
                           &report.interface,
                           &report.exchange_trouble,
                           &report.pmix_client,
                           &report.pmix_server,
                           &report.pmix_trouble,
                           &report.nccl_version,
                           &report.nccl_path,
                           &report.nccl_trouble,
                           &report.cuda_version,
                           &report.cuda_module,
                           &report.openmp_threads,
                           &report.own_gpu,
                           &report.gpu_hint,
                           &report.version,
                           &report.library,
                           &report.plugin,
                           &report.plugin_slurm,
                           &report.plugin_trouble,
                           &report.slurm,
                           &report.python,
                           &report.frameworks,
                           &report.python_nccl,
                           &report.python_nccl_path,
                           &report.cpus,
                           &report.kernel,
                           &report.libc}) {
    *text = endless;
  }
  const std::vector<std::string> many(10'000, "/dev/nvidia0");
  report.gpu_list = report.open_gpus = report.closed_gpus = many;
  const auto text = write_line({"4294967295.4294967295.4294967295", kMaxRanks - 1, "report", write_record(report)});
  EXPECT_LE(text.size(), kMaxLine);
  EXPECT_GT(text.size(), kMaxLine / 2);  // the test would notice if the texts were not long
  EXPECT_TRUE(read_record<CheckReport>(read_line(text.substr(0, text.size() - 1))->body));
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
  EXPECT_FALSE(with("\t5\tConnection", "\t6\tConnection"));        // reach
  EXPECT_FALSE(with("4275878552\t2\t1\t", "4275878552\t3\t1\t"));  // set_by
  EXPECT_FALSE(with("4275878552\t2\t1\t", "4275878552\t2\t2\t"));  // has_plan
  EXPECT_FALSE(with("\tib0\t", "\ti\nb\t"));
  EXPECT_FALSE(with("\t/dev/nvidia0 ", "\t/dev/nvidia0  "));
}

TEST(CheckLine, ComesBackFromItsText) {
  const CheckLine line{"12.0.0", 3, "report", "with blanks in it "};
  auto text = write_line(line);
  EXPECT_EQ(text, "12.0.0 3 report with blanks in it \n");
  text.pop_back();
  EXPECT_EQ(read_line(text), line);
  const auto most = std::to_string(kMaxRanks);
  for (const auto& other : {std::string(), std::string("GET / HTTP/1.1"), std::string("12.0.0 3 clock"),
                            std::string("12.0.0 -1 clock "), "12.0.0 " + most + " clock "}) {
    EXPECT_FALSE(read_line(other)) << other;
  }
}

TEST(CheckLine, IsTakenWholeHoweverItArrives) {
  std::string received;
  std::vector<std::string> lines;
  for (const char byte : std::string("one\n\ntwo and\nthree")) {
    received += byte;
    while (const auto line = take_line(received)) lines.push_back(*line);
  }
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "two and"}));
  EXPECT_EQ(received, "three");
}

}  // namespace
}  // namespace bootstrap
