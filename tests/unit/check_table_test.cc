// The table of a check as text and as JSON.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_table.h"

#include <gtest/gtest.h>

#include "check_step.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

TEST(CheckTable, ShowsAGoodStep) {
  EXPECT_EQ(replaced(table_text(judge_step(good_step())), kVersion, "0.1.0"),
            R"(bootstrap: StepId=12.0: 4 ranks on 2 nodes, rendezvous at node001:20444

CHECK          RESULT     DETAILS
versions       ok         plugin 0.1.0, library 0.1.0, command 0.1.0, Slurm
                          23.11.4
plan           ok         the same for all ranks, set by the plugin
ranks          ok         all 4 ranks answered within 87 ms
network        ok         node001 is 10.1.0.1 (ib0), round trip 0.10 ms
port           ok         20444 on node001 is free for rank 0
clocks         ok         within 0.10 ms of rank 0's
exchange       ok         over PMIx, client 4.2.2, server 4.2.2: 14 ms
frameworks     ok         Python 3.11.2 (/usr/bin/python3): torch 2.6.0
NCCL           ok         2.28.9 (/usr/lib/libnccl.so.2)
CUDA           ok         13.0 (driver 580.65.06)
GPUs           ok         4 GPUs on 2 nodes; each rank can open its own
GPU peers      ok         every rank can open all GPUs of the step on its node
CPUs           ok         4 CPUs for each rank
/dev/shm       ok         at least 12 GiB free
locked memory  ok         no limit
system         ok         Linux 6.1.0-18-amd64, glibc 2.36

All checks passed.
)");
}

TEST(CheckTable, HasAtMostEightyCharactersInALine) {
  auto findings = good_step(4, 8);
  for (auto& report : findings.reports) {
    report->system = std::string(50, 'k') + " " + std::string(50, 'k');
    report->reach_trouble = "Connection refused";
    report->reach = report->rank % 3 == 1 ? Reach::kRefused : Reach::kReached;
    if (report->rank == 7) report->nccl_version = "2.27.3";
  }
  const auto text = table_text(judge_step(findings));
  for (const auto line : split(text, '\n')) EXPECT_LE(line.size(), std::size_t{80}) << line;
  EXPECT_NE(text.find("local rank 6) and 3"), std::string::npos) << text;
  EXPECT_NE(text.find("2 FAILED: network, NCCL."), std::string::npos) << text;
}

TEST(CheckTable, JsonHasTheSameRows) {
  auto findings = good_step();
  findings.reports[3]->nccl_version = "2.27.3";
  const auto json = table_json(judge_step(findings));
  EXPECT_NE(json.find("\"step\": \"12.0\""), std::string::npos);
  EXPECT_NE(json.find("\"result\": \"FAILED\",\n"), std::string::npos);
  EXPECT_NE(
      json.find(
          "{\"check\": \"NCCL\", \"result\": \"FAILED\", \"text\": \"2.27.3 on 1 rank, 2.28.9 on the others; "
          "different versions of NCCL make no communicator, and some wait for each other for ever\", \"ranks\": [3], "),
      std::string::npos)
      << json;
  EXPECT_EQ(json.substr(json.size() - 4), "]\n}\n");
}

}  // namespace
}  // namespace bootstrap
