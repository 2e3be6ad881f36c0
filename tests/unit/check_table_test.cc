// What a check makes of the reports: the table of a good step, and each thing that can be wrong.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_table.h"

#include <gtest/gtest.h>

#include "check_step.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

TEST(CheckTable, OfAGoodStepReadsLikeThis) {
  EXPECT_EQ(table_text(judge_step(good_step())),
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

TEST(CheckTable, LinesAreOfEightyCharacters) {
  auto findings = good_step(4, 8);
  for (auto& report : findings.reports) {
    report->kernel = std::string(50, 'k') + " " + std::string(50, 'k');
    report->reach_trouble = "Connection refused";
    report->reach = report->rank % 3 == 1 ? Reach::kRefused : Reach::kReached;
    if (report->rank == 7) report->nccl_version = "2.27.3";
  }
  const auto text = table_text(judge_step(findings));
  for (const auto line : split(text, '\n')) EXPECT_LE(line.size(), std::size_t{80}) << line;
  EXPECT_NE(text.find("local rank 6) and 3"), std::string::npos) << text;
  EXPECT_NE(text.find("2 FAILED: network, NCCL."), std::string::npos) << text;
}

TEST(CheckTable, JsonSaysTheSame) {
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

TEST(CheckTable, AStepWithoutGpusNeedsNoneOfThem) {
  auto findings = good_step();
  findings.has_exchanged = false;
  for (auto& report : findings.reports) {
    report->has_gpus = report->is_nvidia = report->has_pmix = false;
    report->nccl_version = report->nccl_path = report->cuda_version = report->cuda_module = {};
    report->gpu_list = report->open_gpus = {};
    report->own_gpu = {};
  }
  const auto table = judge_step(findings);
  for (const auto* const name : {"NCCL", "CUDA", "GPUs", "GPU peers"}) {
    EXPECT_EQ(row_of(findings, name).result, CheckResult::kAbsent) << name;
  }
  EXPECT_EQ(table.worst(), CheckResult::kOk);
  // Control: a step with GPUs does need a driver.
  for (auto& report : findings.reports) report->has_gpus = report->is_nvidia = true;
  EXPECT_EQ(row_of(findings, "CUDA").result, CheckResult::kWarning);
}

TEST(CheckPlan, ARankThatMeetsElsewhereIsNamed) {
  auto findings = good_step();
  findings.reports[2]->port = 29501;
  findings.reports[2]->reach = Reach::kRefused;  // of its own port: no second trouble
  const auto row = only_row(findings, "plan", CheckResult::kFailed);
  EXPECT_EQ(row.text, "MASTER_ADDR:MASTER_PORT is node001:29501 here and node001:20444 on rank 0");
  EXPECT_EQ(row.ranks, std::vector<Rank>{2});

  findings = good_step();
  findings.reports[1]->layout = 7;
  EXPECT_EQ(only_row(findings, "plan", CheckResult::kFailed).ranks, std::vector<Rank>{1});
}

TEST(CheckPlan, SaysWhoSetIt) {
  auto findings = good_step();
  for (auto& report : findings.reports) report->set_by = SetBy::kPreload;
  EXPECT_EQ(only_row(findings, "plan", CheckResult::kOk).text, "the same for all ranks, set by the preloaded library");
  for (auto& report : findings.reports) report->set_by = SetBy::kNobody;
  EXPECT_NE(only_row(findings, "plan", CheckResult::kWarning).hint.find("LD_PRELOAD"), std::string::npos);
  findings.reports[3]->set_by = SetBy::kPlugin;
  EXPECT_EQ(only_row(findings, "plan", CheckResult::kWarning).ranks, std::vector<Rank>{3});
}

TEST(CheckPlan, AVariableThatWasChangedIsTold) {
  auto findings = good_step();
  findings.reports[1]->plan_trouble = "RANK is \"7\" in this process, not \"1\"";
  const auto row = only_row(findings, "plan", CheckResult::kWarning);
  EXPECT_EQ(row.text, findings.reports[1]->plan_trouble);
  EXPECT_EQ(row.ranks, std::vector<Rank>{1});
}

TEST(CheckPlan, ARankWithoutOneSaysWhy) {
  auto findings = good_step();
  findings.reports[2]->has_plan = false;
  findings.reports[2]->plan_trouble = "SLURM_BOOTSTRAP_PORT is \"none\", which is no port";
  const auto row = only_row(findings, "plan", CheckResult::kFailed);
  EXPECT_EQ(row.text, findings.reports[2]->plan_trouble);
  EXPECT_EQ(row.ranks, std::vector<Rank>{2});
}

TEST(CheckRanks, ThoseThatWereNotHeardAreNamed) {
  auto findings = good_step();
  findings.reports[2].reset();
  findings.reports[3].reset();
  findings.has_exchanged = false;
  findings.waited_ms = 10'000;
  const auto row = row_of(findings, "ranks");
  EXPECT_EQ(row.result, CheckResult::kFailed);
  EXPECT_EQ(row.text, "2 of 4 ranks did not answer within 10 s");
  const auto text = table_text(judge_step(findings));
  EXPECT_NE(text.find("ranks 2-3 (all of node002)"), std::string::npos) << text;
  // The exchange takes all ranks, and says that this is why there was none.
  EXPECT_EQ(row_of(findings, "exchange").text, "over PMIx, client 4.2.2, server 4.2.2; it needs all ranks");
}

TEST(CheckRanks, StrangersAreCounted) {
  auto findings = good_step();
  findings.rejected = 3;
  EXPECT_EQ(only_row(findings, "ranks", CheckResult::kOk).text,
            "all 4 ranks answered within 87 ms; 3 connections of other programs rejected");
}

TEST(CheckNetwork, EachWayToFailHasItsSentence) {
  const auto with = [](Reach reach, const char* trouble) {
    auto findings = good_step();
    for (const Rank rank : {2U, 3U}) {
      findings.reports[rank]->reach = reach;
      findings.reports[rank]->reach_trouble = trouble;
      if (reach == Reach::kNoName) findings.reports[rank]->target.clear();
    }
    const auto row = only_row(findings, "network", CheckResult::kFailed);
    EXPECT_EQ(row.ranks, (std::vector<Rank>{2, 3}));
    EXPECT_FALSE(row.hint.empty());
    return row.text;
  };
  EXPECT_EQ(with(Reach::kNoName, "Name or service not known"),
            "the name node001 does not resolve (Name or service not known)");
  EXPECT_EQ(with(Reach::kRefused, "Connection refused"),
            "node001:20444 (10.1.0.1) refuses connections: no process listens there (Connection refused)");
  EXPECT_EQ(with(Reach::kSilent, ""), "node001:20444 (10.1.0.1) does not answer");
  EXPECT_EQ(with(Reach::kUnreachable, "No route to host"), "cannot reach node001:20444 (10.1.0.1) (No route to host)");
}

TEST(CheckNetwork, ALoopbackAddressIsRecognised) {
  auto findings = good_step();
  for (const Rank rank : {2U, 3U}) {
    findings.reports[rank]->reach = Reach::kRefused;
    findings.reports[rank]->target = "127.0.0.1";
  }
  EXPECT_NE(row_of(findings, "network").hint.find("loopback address of each node"), std::string::npos);
  findings = good_step();
  findings.reports[0]->target = "127.0.1.1";
  EXPECT_EQ(only_row(findings, "network", CheckResult::kWarning).text,
            "node001 is 127.0.1.1 on its own node; Gloo would send that address to other nodes");
  // On one node nobody else needs it.
  findings = good_step(1);
  findings.reports[0]->target = "127.0.1.1";
  EXPECT_EQ(row_of(findings, "network").result, CheckResult::kOk);
}

TEST(CheckPort, ATakenPortIsOneTroubleAndNotTwo) {
  auto findings = good_step();
  findings.port_trouble = "another program uses it";
  for (const Rank rank : {1U, 2U, 3U}) findings.reports[rank]->reach = Reach::kForeign;
  const auto row = only_row(findings, "port", CheckResult::kFailed);
  EXPECT_EQ(row.text, "20444 on node001 is not free for rank 0: another program uses it");
  // Control: somebody else's answer is a trouble of the network where the port is ours.
  findings.port_trouble.clear();
  EXPECT_EQ(row_of(findings, "network").result, CheckResult::kFailed);
}

TEST(CheckClocks, ASkewAboveATenthOfASecondIsAWarning) {
  auto findings = good_step();
  findings.reports[3]->clock_skew_us = 99'000;
  EXPECT_EQ(only_row(findings, "clocks", CheckResult::kOk).text, "within 99 ms of rank 0's");
  findings.reports[3]->clock_skew_us = 150'000;
  const auto row = only_row(findings, "clocks", CheckResult::kWarning);
  EXPECT_EQ(row.ranks, std::vector<Rank>{3});
  EXPECT_EQ(row.text, "up to 150 ms from rank 0's");
  // A question that travelled for a second says nothing about a tenth of it.
  findings.reports[3]->clock_error_us = 500'000;
  EXPECT_EQ(row_of(findings, "clocks").result, CheckResult::kOk);
  // The farthest a clock can be written to be.
  findings.reports[3]->clock_skew_us = INT64_MAX;
  EXPECT_EQ(row_of(findings, "clocks").result, CheckResult::kWarning);
}

TEST(CheckExchange, AnExchangeThatFailedIsNamed) {
  auto findings = good_step();
  findings.reports[1]->exchange_trouble = "nothing came within 5 s";
  findings.reports[3]->has_exchanged = false;
  const auto row = only_row(findings, "exchange", CheckResult::kFailed);
  EXPECT_EQ(row.ranks, (std::vector<Rank>{1, 3}));
  EXPECT_EQ(row.text, "over PMIx, client 4.2.2, server 4.2.2, failed: nothing came within 5 s");
}

TEST(CheckExchange, ItIsLeftToTheProgramThatFollows) {
  auto findings = good_step();
  findings.has_exchanged = false;
  findings.leaves_exchange = true;
  const auto row = row_of(findings, "exchange");
  EXPECT_EQ(row.result, CheckResult::kSkipped);
  EXPECT_EQ(row.text, "over PMIx, client 4.2.2, server 4.2.2; the program may use it");
  EXPECT_EQ(judge_step(findings).worst(), CheckResult::kOk);
}

TEST(CheckExchange, PartOfTheRanksIsATrouble) {
  auto findings = good_step();
  findings.has_exchanged = false;
  findings.reports[1]->has_pmix = false;
  EXPECT_EQ(only_row(findings, "exchange", CheckResult::kFailed).ranks, std::vector<Rank>{1});
  findings.reports[1]->has_pmix = true;
  findings.reports[1]->pmix_client.clear();
  findings.reports[1]->pmix_trouble = "libpmix.so.2 is not there";
  EXPECT_EQ(only_row(findings, "exchange", CheckResult::kWarning).text,
            "the step has PMIx, but libpmix.so.2 is not there");
}

TEST(CheckExchange, WithoutPmixItIsOverPmi1) {
  auto findings = good_step();
  for (auto& report : findings.reports) report->has_pmix = false;
  EXPECT_EQ(row_of(findings, "exchange").text, "over PMI-1: 14 ms");
  for (auto& report : findings.reports) {
    report->exchange_trouble = "libpmi.so.0 is not there";
    report->lacks_exchange = true;
  }
  const auto row = row_of(findings, "exchange");
  EXPECT_EQ(row.result, CheckResult::kAbsent);
  EXPECT_EQ(row.text, "libpmi.so.0 is not there");
  findings.reports[1]->exchange_trouble.clear();
  findings.reports[1]->lacks_exchange = false;
  EXPECT_EQ(row_of(findings, "exchange").result, CheckResult::kFailed);
}

TEST(CheckTable, ColoursMarkWhatIsNotGoodAndChangeNothingElse) {
  auto findings = good_step();
  findings.port_trouble = "another program uses it";
  findings.reports[3]->cpu_count = 1;
  const auto plain = table_text(judge_step(findings));
  auto coloured = table_text(judge_step(findings), true);
  EXPECT_NE(coloured.find("port           \x1b[1;31mFAILED\x1b[0m     20444"), std::string::npos) << coloured;
  EXPECT_NE(coloured.find("CPUs           \x1b[33mwarning\x1b[0m    bound"), std::string::npos) << coloured;
  for (const auto* const code : {"\x1b[1;31m", "\x1b[33m", "\x1b[0m"}) coloured = replaced(coloured, code, "");
  EXPECT_EQ(coloured, plain);
  EXPECT_EQ(table_text(judge_step(good_step()), true), table_text(judge_step(good_step())));
}

}  // namespace
}  // namespace bootstrap
