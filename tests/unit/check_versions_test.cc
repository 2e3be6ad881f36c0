// What a check says about versions, frameworks and the NCCL of Python.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "check_step.h"
#include "tools/check/python_frameworks.h"

namespace bootstrap {
namespace {

TEST(CheckVersions, ANodeWithoutThePluginIsNamed) {
  auto findings = good_step(3, 2);
  findings.reports[2]->plugin = findings.reports[2]->plugin_slurm = {};
  findings.reports[2]->plugin_trouble = "no line of /etc/slurm/plugstack.conf loads spank_bootstrap.so";
  findings.reports[2]->port = findings.reports[3]->port = 29501;  // which is why it differs: one trouble, not two
  const auto row = row_of(findings, "versions");
  EXPECT_EQ(row.result, CheckResult::kFailed);
  EXPECT_EQ(row.text,
            "no plugin on node002, but plugin 0.1.0 on other nodes: no line of /etc/slurm/plugstack.conf loads "
            "spank_bootstrap.so");
  EXPECT_EQ(row.ranks, (std::vector<Rank>{2, 3}));
  EXPECT_EQ(row_of(findings, "plan").result, CheckResult::kSkipped);
}

TEST(CheckVersions, WhereNoNodeHasThePluginItIsNoFailure) {
  auto findings = good_step();
  for (auto& report : findings.reports) report->plugin = report->plugin_slurm = {};
  findings.reports[0]->plugin_trouble = "no line of /etc/slurm/plugstack.conf loads spank_bootstrap.so";
  const auto row = only_row(findings, "versions", CheckResult::kOk);
  EXPECT_NE(row.text.find("; no plugin: no line of"), std::string::npos) << row.text;
  // In a container there is no plugstack.conf to look at.
  for (auto& report : findings.reports) report->sees_plugstack = false;
  EXPECT_EQ(only_row(findings, "versions", CheckResult::kOk).text, "library 0.1.0, command 0.1.0, Slurm 23.11.4");
}

TEST(CheckVersions, AContainerOnOneNodeIsNoMissingPlugin) {
  auto findings = good_step();
  findings.reports[2]->plugin = findings.reports[2]->plugin_slurm = {};
  findings.reports[2]->sees_plugstack = false;
  EXPECT_EQ(row_of(findings, "versions").result, CheckResult::kOk);
}

TEST(CheckVersions, AnotherVersionOnANodeIsNamed) {
  auto findings = good_step(3, 2);
  findings.reports[4]->plugin = "0.2.0";
  auto row = only_row(findings, "versions", CheckResult::kFailed);
  EXPECT_EQ(row.text, "the plugin is 0.2.0 on 1 node, 0.1.0 on the others");
  EXPECT_EQ(row.ranks, (std::vector<Rank>{4, 5}));
  findings = good_step(3, 2);
  findings.reports[4]->library = "0.2.0";
  EXPECT_EQ(only_row(findings, "versions", CheckResult::kFailed).text,
            "the library is 0.2.0 on 1 node, 0.1.0 on the others");
  findings.reports[4]->version = findings.reports[5]->version = "0.2.0";
  EXPECT_EQ(only_row(findings, "versions", CheckResult::kFailed).text,
            "the command is 0.2.0 on 2 ranks, 0.1.0 on the others");
}

TEST(CheckVersions, ARankWhoseReportCannotBeReadIsNotMissing) {
  auto findings = good_step();
  findings.reports[3].reset();
  findings.has_exchanged = false;
  findings.other_versions = {{3, "0.2.0"}};
  const auto row = row_of(findings, "versions");
  EXPECT_EQ(row.result, CheckResult::kFailed);
  EXPECT_EQ(row.text, "slurm-bootstrap is 0.2.0 on these ranks and 0.1.0 on rank 0");
  EXPECT_EQ(row.ranks, std::vector<Rank>{3});
  EXPECT_EQ(row_of(findings, "ranks").result, CheckResult::kOk);
}

TEST(CheckVersions, APluginOfAnotherSlurmReleaseIsNotLoaded) {
  auto findings = good_step();
  findings.reports[0]->slurm = findings.reports[2]->slurm = "23.11.9";
  EXPECT_EQ(only_row(findings, "versions", CheckResult::kOk).ranks.size(), 0U);
  findings.reports[2]->slurm = "24.11.5";
  const auto row = only_row(findings, "versions", CheckResult::kFailed);
  EXPECT_EQ(row.text, "the plugin is for Slurm 23.11.4 and this is Slurm 24.11.5, which does not load it");
  EXPECT_EQ(row.ranks, (std::vector<Rank>{2, 3}));
}

TEST(CheckFrameworks, NodesThatDifferAreNamed) {
  auto findings = good_step();
  findings.reports[2]->frameworks = "torch 2.5.1";
  const auto row = only_row(findings, "frameworks", CheckResult::kWarning);
  EXPECT_EQ(row.text,
            "Python 3.11.2 (/usr/bin/python3): torch 2.5.1 on 1 node, Python 3.11.2 (/usr/bin/python3): torch 2.6.0 on "
            "the other");
  EXPECT_EQ(row.ranks, (std::vector<Rank>{2, 3}));
  findings.reports[2]->frameworks = {};
  EXPECT_EQ(only_row(findings, "frameworks", CheckResult::kWarning).ranks, (std::vector<Rank>{2, 3}));
}

TEST(CheckFrameworks, WithoutPythonThereIsNoRow) {
  auto findings = good_step();
  for (auto& report : findings.reports) report->python = report->frameworks = {};
  for (const auto& row : judge_step(findings).rows) EXPECT_NE(row.name, "frameworks");
}

TEST(CheckNccl, ThatOfPythonIsShownWhereItIsAnother) {
  auto findings = good_step();
  const auto set = [&](Rank rank, const char* version) {
    findings.reports[rank]->python_nccl = version;
    findings.reports[rank]->python_nccl_path = "/venv/libnccl.so.2";
  };
  set(0, "2.21.5");
  set(2, "2.21.5");
  EXPECT_EQ(only_row(findings, "NCCL", CheckResult::kOk).text,
            "2.28.9 (/usr/lib/libnccl.so.2); Python loads 2.21.5 (/venv/libnccl.so.2)");
  for (auto& report : findings.reports) report->nccl_version = report->nccl_path = {};
  EXPECT_EQ(only_row(findings, "NCCL", CheckResult::kOk).text, "Python loads 2.21.5 (/venv/libnccl.so.2)");
  set(2, "2.20.5");
  const auto row = only_row(findings, "NCCL", CheckResult::kFailed);
  EXPECT_EQ(row.text,
            "Python loads 2.20.5 on 1 node, 2.21.5 on the other; different versions of NCCL make no communicator, and "
            "some wait for each other for ever");
  EXPECT_EQ(row.ranks, (std::vector<Rank>{2, 3}));
  set(0, "2.28.9");
  set(2, "2.28.9");
  for (auto& report : findings.reports) report->nccl_version = "2.28.9";
  EXPECT_EQ(only_row(findings, "NCCL", CheckResult::kOk).text, "2.28.9");
}

TEST(PythonFrameworks, AreReadFromWhatTheScriptPrints) {
  const auto found = read_frameworks(
      "python\t3.11.2\t/usr/bin/python3\nmpi4py\t3.1.4\nnccl\t2.21.5\t/venv/libnccl.so.2\ntorch\t2.6.0\nnoise\n");
  EXPECT_EQ(found.python, "3.11.2 (/usr/bin/python3)");
  EXPECT_EQ(found.frameworks, "mpi4py 3.1.4, torch 2.6.0");
  EXPECT_EQ(found.nccl, "2.21.5");
  EXPECT_EQ(found.nccl_path, "/venv/libnccl.so.2");
  EXPECT_EQ(read_frameworks("").python, "");
}

}  // namespace
}  // namespace bootstrap
