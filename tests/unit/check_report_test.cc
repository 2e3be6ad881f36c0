// What a rank reports in a check is read from its text, and nothing else is; the report of a process about itself: the
// plan as its program sees it, and what set it; the table as text and as JSON.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_report.h"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>
#include <type_traits>

#include "check_step.h"
#include "core/plan/step_plan.h"
#include "core/settings/variables.h"
#include "core/step/srun_messages.h"
#include "core/util/text.h"
#include "plan_values.h"
#include "tools/check/check_session.h"
#include "tools/check/check_socket.h"
#include "tools/check/check_table.h"

namespace bootstrap {
namespace {

// No member is at its default.
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

TEST(CheckReport, ComesBackFromItsText) {
  EXPECT_EQ(read_record<CheckReport>(write_record(full_report())), full_report());
  EXPECT_EQ(read_record<CheckReport>(write_record(CheckReport())), CheckReport());
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
  struct Longest : Fill {
    using Fill::operator();
    void operator()(std::string& text) { text.assign(100'000, 'x'); }
    void operator()(std::vector<std::string>& items) { items.assign(10'000, "/dev/nvidia0"); }
  };
  CheckReport report;
  fill(report, Longest());
  const auto text = write_record(report);
  EXPECT_LE(text.size() + std::string_view("report ").size(), kMaxLine);
  EXPECT_GT(text.size(), kMaxLine / 2);  // the test would notice if the texts were not long
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

// The environment of a rank that the plugin has set up.
Environment set_up(int rank) {
  auto environment = two_by_two(rank);
  const auto plan = plan_of(environment);
  for (const auto& variable : plan.variables) environment.set(variable.name, variable.value);
  environment.set("SLURM_BOOTSTRAP_LAYOUT", "12.0/block");
  return environment;
}

TEST(CheckSelf, IsTheRankWithItsPlan) {
  const auto self = succeeded(look_at_self(set_up(3)));
  const auto& report = self->report;
  EXPECT_EQ(step_tag(self->facts.id), "12.0.0");
  EXPECT_EQ(report.rank, 3U);
  EXPECT_EQ(report.size, 4U);
  EXPECT_EQ(report.address, "node001");
  EXPECT_EQ(report.port, 20444);
  EXPECT_EQ(report.set_by, SetBy::kPlugin);
  EXPECT_TRUE(report.has_gpus && report.is_nvidia);
  EXPECT_EQ(report.plan_trouble, "");
  EXPECT_GT(report.cpu_count, 0U);
}

TEST(CheckSelf, RanksAgreeExactlyWhenTheirStepsDo) {
  const auto layout_of = [](const Environment& environment) { return look_at_self(environment).value().report.layout; };
  EXPECT_EQ(layout_of(two_by_two(0)), layout_of(two_by_two(3)));
  auto cyclic = two_by_two(0);
  cyclic.set("SLURM_DISTRIBUTION", "cyclic");
  EXPECT_NE(layout_of(two_by_two(0)), layout_of(cyclic));
}

TEST(CheckSelf, ReportsTheValuesThatTheProgramSees) {
  auto environment = set_up(2);
  environment.set("MASTER_PORT", "29999");
  auto self = succeeded(look_at_self(environment));
  EXPECT_EQ(self->report.port, 29999);
  environment.set("MASTER_PORT", "many");
  self = succeeded(look_at_self(environment));
  EXPECT_EQ(self->report.port, 0);
  EXPECT_EQ(self->report.plan_trouble, "MASTER_PORT is \"many\", which is no port");
}

TEST(CheckSelf, FindsWhatSetTheVariables) {
  EXPECT_EQ(look_at_self(two_by_two(0)).value().report.set_by, SetBy::kNothing);
  auto environment = set_up(0);
  environment.set("LD_PRELOAD", "/opt/lib/libbootstrap.so");
  EXPECT_EQ(look_at_self(environment).value().report.set_by, SetBy::kPlugin);  // both: srun had the plugin
  environment.unset("SLURM_BOOTSTRAP_LAYOUT");
  EXPECT_EQ(look_at_self(environment).value().report.set_by, SetBy::kPreload);
}

TEST(CheckSelf, KnowsWhatBecameOfTheDecisionWhereNothingIsSet) {
  const auto reading = [](std::initializer_list<std::pair<std::string_view, std::string_view>> added) {
    return look_at_self(with(two_by_two(1), added)).value().report.decision;
  };
  const StepId id{.job = 12, .step = 0};
  const auto world = write_decision(id, StepFacts().decision);
  const auto nothing = write_decision(id, Decision());
  const auto others = write_decision({.job = 12, .step = 7}, StepFacts().decision);
  constexpr auto kLayout = "SLURM_BOOTSTRAP_LAYOUT";
  EXPECT_EQ(reading({}), Reading::kNone);
  EXPECT_EQ(reading({{kDecisionVariable, world}, {kLayout, "12.0/block"}}), Reading::kUnread);
  EXPECT_EQ(reading({{kDecisionVariable, nothing}}), Reading::kNone) << "srun did not set it up";
  EXPECT_EQ(reading({{kDecisionVariable, others}, {kLayout, "12.7/block"}}), Reading::kNone) << "left by an outer step";
  EXPECT_EQ(reading({{kLayout, "12.0/block"}}), Reading::kRead);
  EXPECT_EQ(look_at_self(set_up(1)).value().report.decision, Reading::kNone);
}

TEST(CheckSelf, FindsValuesThatAreNotTheOnesThatWereSet) {
  using Names = std::vector<std::string>;
  const auto changed = [](const Environment& environment) { return look_at_self(environment).value().report.changed; };
  EXPECT_EQ(changed(set_up(1)), Names{});
  EXPECT_EQ(changed(with(set_up(1), {{"MASTER_ADDR", "login1"}, {"MASTER_PORT", "1"}})),
            (Names{"MASTER_ADDR", "MASTER_PORT"}));
  EXPECT_EQ(changed(with(set_up(1), {{"RANK", "0"}})), Names{"RANK"});
  // The environment of the first task, as another plugin gives it to all tasks of the node, with its record.
  auto copied = set_up(0);
  copied.set("SLURM_PROCID", "1");
  EXPECT_EQ(changed(copied), Names{"RANK"});
  EXPECT_EQ(changed(with(two_by_two(1), {{"MASTER_ADDR", "login1"}})), Names{}) << "nothing was set";
  auto kept = with(two_by_two(1), {{"MASTER_ADDR", "n1-ib0"}});
  const auto plan = plan_of(kept);
  for (const auto& variable : plan.variables) {
    if (variable.action != Action::kKept) kept.set(variable.name, variable.value);
  }
  EXPECT_EQ(changed(kept), Names{}) << "the user set it";
}

TEST(CheckSelf, FailsOutsideOfAStep) {
  EXPECT_EQ(error_of(look_at_self(Environment())).code, ErrorCode::kMissing);
  EXPECT_FALSE(look_at_machine(Environment()).report.host.empty());
}

TEST(PythonFrameworks, AreReadFromWhatTheScriptPrints) {
  CheckReport found;
  add_frameworks(found, "noise\n3.11.2 (/usr/bin/python3)\nmpi4py 3.1.4, torch 2.6.0\n2.21.5\n/venv/libnccl.so.2\n");
  EXPECT_EQ(found.python, "3.11.2 (/usr/bin/python3)");
  EXPECT_EQ(found.frameworks, "mpi4py 3.1.4, torch 2.6.0");
  EXPECT_EQ(found.python_nccl, "2.21.5");
  EXPECT_EQ(found.python_nccl_path, "/venv/libnccl.so.2");
}

TEST(CheckTable, OfAGoodStepReadsLikeThis) {
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

TEST(CheckTable, LinesAreOfEightyCharacters) {
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
