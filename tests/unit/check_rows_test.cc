// The rows of a check's table: each fault of a step shows in its own row only.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>

#include "check_step.h"
#include "core/util/text.h"
#include "tools/check/check_table.h"

namespace bootstrap {
namespace {

using ChangeFindings = std::function<void(CheckFindings&)>;

// Makes the same change to the reports of these ranks.
ChangeFindings on(std::vector<Rank> ranks, const std::function<void(CheckReport&)>& change) {
  return [=](CheckFindings& findings) {
    for (const auto rank : ranks) change(*findings.reports[rank]);
  };
}
ChangeFindings on_all(const std::function<void(CheckReport&)>& change) {
  return [=](CheckFindings& findings) {
    for (auto& report : findings.reports) change(*report);
  };
}
ChangeFindings both(const ChangeFindings& one, const ChangeFindings& other) {
  return [=](CheckFindings& findings) {
    one(findings);
    other(findings);
  };
}

constexpr auto kOk = CheckResult::kOk;
constexpr auto kAbsent = CheckResult::kAbsent;
constexpr auto kSkipped = CheckResult::kSkipped;
constexpr auto kWarning = CheckResult::kWarning;
constexpr auto kFailed = CheckResult::kFailed;

// A change to a good step of four ranks on two nodes, and the row that shows it. An empty text or list of ranks is not
// compared. `hint` is a part of the row's hint. With `is_only` no other row is worse than in a good step.
void expect_row(const ChangeFindings& change, const char* name, CheckResult result, const std::string& text = {},
                const std::vector<Rank>& ranks = {}, const char* hint = "", bool is_only = true) {
  auto findings = good_step();
  change(findings);
  const auto row = is_only ? only_row(findings, name, result) : row_of(findings, name);
  EXPECT_EQ(row.result, result) << row.text;
  EXPECT_EQ(row.text, text.empty() ? row.text : text);
  EXPECT_EQ(row.ranks, ranks.empty() ? row.ranks : ranks) << row.text;
  EXPECT_NE(row.hint.find(hint), std::string::npos) << row.text << row.hint;
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr const char* kNoLine = "no line of /etc/slurm/plugstack.conf loads spank_bootstrap.so";
const std::string kInOrder = cat({"library 0.1.0, command ", kVersion, ", Slurm 23.11.4"});
const std::string kOverPmix = "over PMIx, client 4.2.2, server 4.2.2";
const std::string kManyNccls =
    "; different versions of NCCL make no communicator, and some wait for each other for ever";

TEST(CheckRows, NameFaultsOfThePlanAndTheRanks) {
  const auto changed = "RANK is \"7\" in this process, not \"1\"";
  const auto no_port = "SLURM_BOOTSTRAP_PORT is \"none\", which is no port";
  const auto set_by = [](SetBy setter) { return on_all([=](auto& report) { report.set_by = setter; }); };
  const auto missing = [](CheckFindings& findings) {
    findings.reports[2].reset();
    findings.reports[3].reset();
    findings.has_exchanged = false;
    findings.waited_ms = 10'000;
  };
  expect_row(on({2},
                [](auto& report) {
                  report.port = 29501;
                  report.reach = Reach::kRefused;  // of its own port, so there is no second fault
                }),
             "plan", kFailed, "MASTER_ADDR:MASTER_PORT is node001:29501 here and node001:20444 on rank 0", {2});
  expect_row(on({1}, [](auto& report) { report.layout = 7; }), "plan", kFailed, "", {1});
  expect_row(set_by(SetBy::kPreload), "plan", kOk, "the same for all ranks, set by the preloaded library");
  expect_row(set_by(SetBy::kNothing), "plan", kWarning, "", {}, "LD_PRELOAD");
  expect_row(both(set_by(SetBy::kNothing), on({3}, [](auto& report) { report.set_by = SetBy::kPreload; })), "plan",
             kWarning, "", {3});
  expect_row(on({1}, [=](auto& report) { report.plan_trouble = changed; }), "plan", kWarning, changed, {1});
  expect_row(on({2},
                [=](auto& report) {
                  report.port = 0;
                  report.plan_trouble = no_port;
                }),
             "plan", kFailed, no_port, {2});
  expect_row(missing, "ranks", kFailed, "2 of 4 ranks did not answer within 10 s", {2, 3}, "", false);
  expect_row(missing, "exchange", kSkipped, kOverPmix + "; it needs all ranks", {}, "", false);
  auto findings = good_step();
  missing(findings);
  EXPECT_NE(table_text(judge_step(findings)).find("ranks 2-3 (all of node002)"), std::string::npos);
}

// A task has all of the plugin's variables or none, so these tasks have another port, too.
TEST(CheckRows, ThePlanOfATaskWithoutVariablesNamesTheCause) {
  const auto unset = [](std::vector<Rank> ranks, SetBy setter) {
    const bool is_whole = ranks.size() == 4;
    return on(std::move(ranks), [=](auto& report) {
      report.set_by = setter;
      report.port = 29501;
      report.reach = is_whole ? Reach::kReached : Reach::kForeign;
    });
  };
  const auto loaded =
      "the plugin is not loaded on node002: srun set the step up, and these tasks have none of its variables";
  const auto ran = [](const char* hosts) {
    return cat({"the plugin's task_init did not run on ", hosts,
                ", or reported there why it set nothing: these tasks "
                "have none of its variables"});
  };
  expect_row(unset({2, 3}, SetBy::kUnread), "plan", kFailed, loaded, {2, 3}, "check --local");
  expect_row(unset({2, 3}, SetBy::kRead), "plan", kFailed, ran("node002"), {2, 3}, "plugstack.conf");
  expect_row(unset({2, 3}, SetBy::kNothing), "plan", kFailed, ran("node002"), {2, 3});
  expect_row(unset({0, 1, 2, 3}, SetBy::kRead), "plan", kFailed, ran("node001 and 1 more node"), {0, 1, 2, 3});
  expect_row(unset({0, 1, 2, 3}, SetBy::kNothing), "plan", kWarning, "", {}, "LD_PRELOAD");
}

TEST(CheckRows, AVariableThatAnotherPluginChangedIsNamed) {
  const auto changed = [](std::vector<Rank> ranks, std::vector<std::string> names, const char* address = "node001") {
    return on(std::move(ranks), [=](auto& report) {
      report.changed = names;
      report.address = address;
    });
  };
  const auto text = [](const char* names) {
    return cat({"another plugin, a TaskProlog or a script changed ", names, " after this plugin had set it"});
  };
  expect_row(changed({1, 3}, {"RANK"}), "plan", kFailed, text("RANK"), {1, 3}, "move the line");
  expect_row(changed({2, 3}, {"MASTER_ADDR"}, "login1"), "plan", kFailed, text("MASTER_ADDR"), {2, 3});
  expect_row(changed({0, 1, 2, 3}, {"MASTER_ADDR"}, "n1-ib0"), "plan", kWarning, text("MASTER_ADDR"), {0, 1, 2, 3});
  expect_row(changed({1}, {"LOCAL_RANK"}), "plan", kWarning, text("LOCAL_RANK"), {1});
  // All ranks have the same wrong address, so the name server is not the cause.
  const auto everywhere = both(changed({0, 1, 2, 3}, {"MASTER_ADDR", "MASTER_PORT"}, "login1"),
                               on({2, 3}, [](auto& report) { report.reach = Reach::kNoName; }));
  expect_row(everywhere, "network", kFailed, "the name login1 (10.1.0.1) does not resolve", {2, 3},
             "see the row of the plan", false);
  expect_row(everywhere, "plan", kWarning, text("MASTER_ADDR, MASTER_PORT"), {0, 1, 2, 3}, "", false);
}

TEST(CheckRows, NameFaultsOfTheNetwork) {
  const auto cut_off = [](Reach reach, const char* trouble, const char* target = "10.1.0.1") {
    return on({2, 3}, [=](auto& report) {
      report.reach = reach;
      report.reach_trouble = trouble;
      report.target = target;
    });
  };
  const auto target_of_zero = on({0}, [](auto& report) { report.target = "127.0.1.1"; });
  const auto taken = both([](auto& findings) { findings.port_trouble = "another program uses it"; },
                          on({1, 2, 3}, [](auto& report) { report.reach = Reach::kForeign; }));
  const auto clock = [](std::uint64_t skew, std::uint64_t error) {
    return on({3}, [=](auto& report) {
      report.clock_skew_us = skew;
      report.clock_error_us = error;
    });
  };
  expect_row(cut_off(Reach::kNoName, "Name or service not known", ""), "network", kFailed,
             "the name node001 does not resolve (Name or service not known)", {2, 3}, "/etc/hosts");
  expect_row(cut_off(Reach::kRefused, "Connection refused"), "network", kFailed,
             "node001:20444 (10.1.0.1) refuses connections: no process listens there (Connection refused)", {2, 3},
             "set ");
  expect_row(cut_off(Reach::kSilent, ""), "network", kFailed, "node001:20444 (10.1.0.1) does not answer", {2, 3},
             "firewall");
  expect_row(cut_off(Reach::kUnreachable, "No route to host"), "network", kFailed,
             "cannot reach node001:20444 (10.1.0.1) (No route to host)", {2, 3}, "routes");
  expect_row(cut_off(Reach::kRefused, "", "127.0.0.1"), "network", kFailed, "", {2, 3},
             "loopback address of each node");
  expect_row(target_of_zero, "network", kWarning,
             "node001 is 127.0.1.1 on its own node; Gloo would send that address to other nodes");
  expect_row(taken, "port", kFailed, "20444 on node001 is not free for rank 0: another program uses it");
  expect_row(both(taken, [](auto& findings) { findings.port_trouble.clear(); }), "network", kFailed);
  expect_row(clock(99'000, 60), "clocks", kOk, "within 99 ms of rank 0's");
  expect_row(clock(150'000, 60), "clocks", kWarning, "up to 150 ms from rank 0's", {3});
  expect_row(clock(150'000, 500'000), "clocks", kOk);
  expect_row(clock(INT64_MAX, 500'000), "clocks", kWarning);
  auto findings = good_step(1);
  target_of_zero(findings);
  EXPECT_EQ(row_of(findings, "network").result, kOk) << "no other node needs it";
}

TEST(CheckRows, NameFaultsOfTheExchange) {
  const auto not_tried = [](auto& findings) { findings.has_exchanged = false; };
  const auto no_pmix = on_all([](auto& report) { report.has_pmix = false; });
  const auto lacks = [](std::vector<Rank> ranks) {
    return on(std::move(ranks), [](auto& report) {
      report.exchange_trouble = "libpmi.so.0 is not there";
      report.lacks_exchange = true;
    });
  };
  expect_row(both(on({1}, [](auto& report) { report.exchange_trouble = "nothing came within 5 s"; }),
                  on({3}, [](auto& report) { report.has_exchanged = false; })),
             "exchange", kFailed, kOverPmix + ", failed: nothing came within 5 s", {1, 3});
  expect_row(both(not_tried, [](auto& findings) { findings.leaves_exchange = true; }), "exchange", kSkipped,
             kOverPmix + "; the program may use it", {}, "", false);
  expect_row(both(not_tried, on({1}, [](auto& report) { report.has_pmix = false; })), "exchange", kFailed, "", {1});
  expect_row(both(not_tried, on({1},
                                [](auto& report) {
                                  report.pmix_client.clear();
                                  report.pmix_trouble = "libpmix.so.2 is not there";
                                })),
             "exchange", kWarning, "the step has PMIx, but libpmix.so.2 is not there");
  expect_row(no_pmix, "exchange", kOk, "over PMI-1: 14 ms");
  expect_row(both(no_pmix, lacks({0, 1, 2, 3})), "exchange", kAbsent, "libpmi.so.0 is not there");
  expect_row(both(no_pmix, lacks({0, 2, 3})), "exchange", kFailed);
}

TEST(CheckRows, NameFaultsOfNcclAndCuda) {
  const auto nccl = [](std::vector<Rank> ranks, const char* version) {
    return on(std::move(ranks), [=](auto& report) { report.nccl_version = version; });
  };
  const auto of_python = [](std::vector<Rank> ranks, const char* version) {
    return on(std::move(ranks), [=](auto& report) {
      report.python_nccl = version;
      report.python_nccl_path = "/venv/libnccl.so.2";
    });
  };
  const auto none = on_all([](auto& report) { report.nccl_version = report.nccl_path = {}; });
  const auto too_old = "NCCL in /old is 2.11.4; set SLURM_BOOTSTRAP_NCCL";
  const auto no_driver = on({3}, [](auto& report) { report.cuda.clear(); });
  expect_row(nccl({2, 3}, "2.27.3"), "NCCL", kFailed, "2.27.3 on 2 ranks, 2.28.9 on the others" + kManyNccls, {2, 3});
  expect_row(on({2}, [](auto& report) { report.nccl_path = "/opt/nccl/lib/libnccl.so.2"; }), "NCCL", kOk,
             "2.28.9 from 2 different places");
  expect_row(nccl({1}, ""), "NCCL", kFailed, "", {1});
  expect_row(on({1}, [=](auto& report) { report.nccl_trouble = too_old; }), "NCCL", kFailed, too_old);
  expect_row(of_python({0, 2}, "2.21.5"), "NCCL", kOk,
             "2.28.9 (/usr/lib/libnccl.so.2); Python loads 2.21.5 (/venv/libnccl.so.2)");
  expect_row(both(none, of_python({0, 2}, "2.21.5")), "NCCL", kOk, "Python loads 2.21.5 (/venv/libnccl.so.2)");
  expect_row(both(of_python({0}, "2.21.5"), of_python({2}, "2.20.5")), "NCCL", kFailed,
             "Python loads 2.20.5 on 1 node, 2.21.5 on the other" + kManyNccls, {2, 3});
  expect_row(of_python({0, 2}, "2.28.9"), "NCCL", kOk, "2.28.9 (/usr/lib/libnccl.so.2)");
  expect_row(on({2, 3}, [](auto& report) { report.cuda = "13.0 (driver 575.57.08)"; }), "CUDA", kWarning,
             "13.0 (driver 575.57.08) on 2 ranks, 13.0 (driver 580.65.06) on the others");
  expect_row(no_driver, "CUDA", kFailed, "", {3});
  const auto no_drivers = on_all([](auto& report) { report.cuda.clear(); });
  expect_row(no_drivers, "CUDA", kWarning, "the step has GPUs, but libcuda.so.1 is missing");
  const auto no_gpus = on_all([](auto& report) { report.has_gpus = report.is_nvidia = false; });
  expect_row(both(no_drivers, no_gpus), "CUDA", kAbsent, "no driver; no GPU of this step needs one");
  for (const auto* const name : {"GPUs", "GPU peers"}) expect_row(no_gpus, name, kAbsent, "", {}, "", false);
  expect_row(none, "NCCL", kAbsent);
  expect_row(both(no_driver, no_gpus), "CUDA", kWarning, "13.0 (driver 580.65.06) on some ranks, missing on 1 rank",
             {3}, "", false);
}

TEST(CheckRows, NameFaultsOfTheGpus) {
  const auto shared = on({3}, [](auto& report) { report.own_gpu = "/dev/nvidia0"; });
  const auto no_own = on({3}, [](auto& report) { report.own_gpu.clear(); });
  const auto mig = on_all([](auto& report) {
    report.own_gpu = report.rank % 2 == 0 ? "MIG-0" : "MIG-1";
    report.gpu_list = {report.own_gpu};
    report.gpus_on_node = 14;
  });
  expect_row(shared, "GPUs", kFailed, "2 ranks of node002 share /dev/nvidia0; NCCL needs a GPU for each rank", {2, 3});
  expect_row(both(shared, on_all([](auto& report) { report.may_share_gpus = true; })), "GPUs", kWarning, "", {2, 3});
  expect_row(on({1},
                [](auto& report) {
                  report.open_gpus = {"/dev/nvidia0"};
                  report.closed_gpus = {"/dev/nvidia1"};
                }),
             "GPUs", kFailed, "", {1}, "srun --gpu-bind=none", false);
  expect_row(on({3}, [](auto& report) { report.gpu_list = {"/dev/nvidia0", "?"}; }), "GPUs", kFailed, "", {3});
  expect_row(no_own, "GPUs", kFailed, "", {3});
  expect_row(both(no_own, on_all([](auto& report) { report.leaves_gpus = true; })), "GPUs", kOk,
             "the program chooses them (--bootstrap-gpu=off)");
  expect_row(on({0}, [](auto& report) { report.has_gpus = false; }), "GPUs", kFailed, "", {0});
  // The step has two of four GPUs, and a device cgroup hides the others from all its tasks.
  expect_row(on_all([](auto& report) {
               report.closed_gpus = {"/dev/nvidia2", "/dev/nvidia3"};
             }),
             "GPU peers", kOk, "every rank can open all GPUs of the step on its node");
  expect_row(mig, "GPU peers", kAbsent, "MIG instances have no peers");
  auto findings = good_step(4, 1);
  EXPECT_EQ(only_row(findings, "GPUs", kOk).text, "4 GPUs on 4 nodes; each rank can open its own");
  EXPECT_EQ(row_of(findings, "GPU peers").text, "one GPU on each node");
  findings = good_step(2, 4);
  for (auto& report : findings.reports) {
    report->closed_gpus = report->open_gpus;
    std::erase(report->closed_gpus, report->own_gpu);
    report->gpu_list = report->open_gpus = {report->own_gpu};
  }
  const auto row = only_row(findings, "GPU peers", kWarning);
  EXPECT_EQ(row.text,
            "Slurm hides all but 1 of the 4 GPUs of a node from each task: no NVLink and no CUDA IPC between them");
  EXPECT_EQ(row.hint, "srun --gpu-bind=none");
  EXPECT_EQ(row.ranks.size(), 8U);
}

TEST(CheckRows, NameFaultsOfTheMachines) {
  const auto one_cpu = on({1}, [](auto& report) { report.cpu_count = 1; });
  const auto shm = [](std::uint64_t mebibytes) {
    return on({2, 3}, [=](auto& report) { report.shm_free = mebibytes * kMiB; });
  };
  const auto locked = on({1}, [](auto& report) { report.locked_memory = 8 * kMiB; });
  expect_row(one_cpu, "CPUs", kWarning, "bound to one CPU each; the step has 4 for each rank", {1});
  // One CPU is right if the node has no more.
  expect_row(both(one_cpu, on({1}, [](auto& report) { report.cpus_on_node = 2; })), "CPUs", kOk,
             "1 to 4 CPUs for a rank");
  expect_row(on({2}, [](auto& report) { report.openmp_threads = "8"; }), "CPUs", kWarning, "", {2});
  const auto near = on_all([](auto& report) { report.near = {.near = "1", .nearness = Nearness::kNumaNode}; });
  const auto far = on({3}, [](auto& report) { report.near = {.nearness = Nearness::kAcross}; });
  expect_row(near, "GPU places", kOk, "all ranks run on cores near their GPU");
  expect_row(both(near, far), "GPU places", kWarning, "these ranks run on cores far from their GPU", {3});
  expect_row(shm(127), "/dev/shm", kWarning, "at least 127 MiB free; NCCL and data loaders need 64 MiB for each rank",
             {2, 3});
  expect_row(shm(128), "/dev/shm", kOk, "at least 128 MiB free");
  expect_row(locked, "locked memory", kWarning, "", {1});
  expect_row(both(locked, on_all([](auto& report) { report.rdma_devices = 0; })), "locked memory", kOk,
             "limit 8 MiB; there is no RDMA device");
  expect_row(on({2, 3}, [](auto& report) { report.system = "Linux 6.1.0-18-amd64, glibc 2.28"; }), "system", kWarning,
             "", {2, 3});
}

TEST(CheckRows, NameFaultsOfVersionsAndFrameworks) {
  const auto no_plugin = [](auto& report) { report.plugin = report.plugin_slurm = {}; };
  const auto no_plugin_on_2 = on({2}, [=](auto& report) {
    no_plugin(report);
    report.plugin_trouble = kNoLine;
  });
  const auto slurm = [](Rank rank, const char* version) {
    return on({rank}, [=](auto& report) { report.slurm = version; });
  };
  const auto other_version = [](CheckFindings& findings) {
    findings.reports[3].reset();
    findings.has_exchanged = false;
    findings.other_versions = {{3, "0.2.0"}};
  };
  const auto library = on({2}, [](auto& report) { report.library = "0.2.0"; });
  // One fault, not two: the port differs because the plugin is missing.
  expect_row(both(no_plugin_on_2, on({2, 3}, [](auto& report) { report.port = 29501; })), "versions", kFailed,
             cat({"no plugin on these nodes, but plugin 0.1.0 on other nodes: ", kNoLine}), {2, 3}, "", false);
  expect_row(no_plugin_on_2, "plan", kSkipped, "", {}, "", false);
  expect_row(both(on_all(no_plugin), on({0}, [](auto& report) { report.plugin_trouble = kNoLine; })), "versions", kOk,
             cat({kInOrder, "; no plugin: ", kNoLine}));
  // In a container there is no plugstack.conf.
  expect_row(on_all(no_plugin), "versions", kOk, kInOrder);
  expect_row(on({2}, no_plugin), "versions", kOk);
  expect_row(on({2}, [](auto& report) { report.plugin = "0.2.0"; }), "versions", kFailed,
             "the plugin is 0.2.0 on 1 node, 0.1.0 on the other", {2, 3});
  expect_row(library, "versions", kFailed, "the library is 0.2.0 on 1 node, 0.1.0 on the other", {2, 3});
  expect_row(other_version, "versions", kFailed,
             cat({"slurm-bootstrap is 0.2.0 on these ranks and ", kVersion, " on rank 0"}), {3}, "", false);
  expect_row(other_version, "ranks", kOk, "", {}, "", false);
  expect_row(both(slurm(0, "23.11.9"), slurm(2, "23.11.9")), "versions", kOk);
  expect_row(slurm(2, "24.11.5"), "versions", kFailed,
             "the plugin is for Slurm 23.11.4 and this is Slurm 24.11.5, which does not load it", {2, 3});
  expect_row(
      on({2}, [](auto& report) { report.frameworks = "torch 2.5.1"; }), "frameworks", kWarning,
      "Python 3.11.2 (/usr/bin/python3): torch 2.5.1 on 1 node, Python 3.11.2 (/usr/bin/python3): torch 2.6.0 on "
      "the other",
      {2, 3});
  expect_row(on({2}, [](auto& report) { report.frameworks.clear(); }), "frameworks", kWarning, "", {2, 3});
  auto findings = good_step();
  for (auto& report : findings.reports) report->python = report->frameworks = {};
  for (const auto& row : judge_step(findings).rows) EXPECT_NE(row.name, "frameworks");
}

}  // namespace
}  // namespace bootstrap
