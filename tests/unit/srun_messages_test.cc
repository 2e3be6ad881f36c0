// srun's own options, read before srun has read them. What srun hands to the nodes: what is written is read back the
// same, short where it can be, and garbage is refused.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/srun_messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "core/program/srun_arguments.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

using Counts = std::vector<std::uint32_t>;

std::string write(const Counts& counts, const std::vector<NodeIndex>& map) {
  return *write_layout(12, 3, {{12, "n[1-9]", counts, map}});
}

TEST(LayoutText, NamesTheUsualOrders) {
  EXPECT_EQ(write({2, 2}, deal_block({2, 2})), "12.3/block");
  EXPECT_EQ(write({2, 2}, deal_cyclic({2, 2})), "12.3/cyclic");
  EXPECT_EQ(write({4, 3}, deal_plane({4, 3}, 2)), "12.3/plane:2");
  EXPECT_EQ(write({1, 1, 2}, {2, 0, 1, 2}), "12.3/map:2,0,1,2");
  EXPECT_EQ(write({3, 1}, {1, 0, 0, 0}), "12.3/map:1,0x3");
}

TEST(LayoutText, ComponentsCarryTheirOwn) {
  const auto text = write_layout(43, 0, {{43, "n[1-2]", {2, 2}, deal_block({2, 2})}, {44, "n3", {1}, {0}}});
  EXPECT_EQ(*text, "43.0/43;n[1-2];2x2;block/44;n3;1;block");
  const auto read = succeeded(read_layout(*text, *parse_host_list("n[1-3]"), {2, 2, 1}));
  EXPECT_EQ(read->component_jobs, Counts({43, 44}));
  EXPECT_EQ(read->components[1].nodes.at(0), "n3");
}

TEST(LayoutText, CarriesTheAddressOfMasterAddr) {
  const std::vector<ComponentText> components{{43, "n1", {1}, {0}}, {44, "n2", {1}, {0}}};
  const auto text = *write_layout(43, 0, components, {"10.0.0.1", {}, {}});
  EXPECT_EQ(text, "43.0/43;n1;1;block/44;n2;1;block@10.0.0.1");
  const auto read = succeeded(read_layout(text, *parse_host_list("n[1-2]"), {1, 1}));
  EXPECT_EQ(read->meeting.ours, "10.0.0.1");
  EXPECT_EQ(read->component_jobs, Counts({43, 44}));
}

TEST(LayoutText, CarriesTheAddressesThatAreKnown) {
  const std::vector<ComponentText> components{{43, "n1", {1}, {0}}};
  const std::vector<std::pair<MeetingAddresses, std::string>> cases{
      {{}, "43.0/block"},
      {{"10.0.0.1", "fd00::7", {}}, "43.0/block@10.0.0.1,fd00::7"},
      {{{}, "10.0.0.2", {}}, "43.0/block@,10.0.0.2"},
      {{{}, {}, "n1-mgmt"}, "43.0/block@,,n1-mgmt"},
  };
  for (const auto& [meeting, expected] : cases) {
    EXPECT_EQ(*write_layout(43, 0, components, meeting), expected);
    const auto read = read_layout(expected, {"n1"}, {1});
    ASSERT_TRUE(read) << expected;
    EXPECT_EQ(read->meeting, meeting);
  }
  for (const auto* wrong : {"@x", "@10.0.0.1,x", "@,,a b", "@,,,"}) {
    EXPECT_FALSE(read_layout(cat({"43.0/block", wrong}), {"n1"}, {1})) << wrong;
  }
}

TEST(LayoutText, ComesBackTheSame) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    Counts counts(1 + random() % 7);
    for (auto& count : counts) count = static_cast<std::uint32_t>(1 + random() % 4);
    auto map = deal_plane(counts, static_cast<std::uint32_t>(1 + random() % 4));
    if (round % 3 == 0) std::shuffle(map.begin(), map.end(), random);
    const auto read = succeeded(
        read_layout(write(counts, map), *parse_host_list("n[1-" + std::to_string(counts.size()) + "]"), counts));
    EXPECT_EQ(read->job, 12U);
    EXPECT_EQ(read->step, 3U);
    EXPECT_EQ(read->components.at(0).node_of_rank, map);
    EXPECT_EQ(read->components.at(0).tasks_per_node, counts);
  }
}

TEST(LayoutText, IsForOneStep) {
  EXPECT_TRUE(layout_is_for("12.3/block", 12, 3));
  EXPECT_FALSE(layout_is_for("12.30/block", 12, 3));
  EXPECT_FALSE(layout_is_for("112.3/block", 12, 3));
  EXPECT_FALSE(layout_is_for("", 12, 3));
}

TEST(LayoutText, RefusesGarbage) {
  EXPECT_FALSE(read_layout("", *parse_host_list("n[1-2]"), {2, 2}));
  for (const auto text :
       split("block 12/block 12.3 12.3/ 12.3/diagonal 12.3/plane:0 12.3/plane: 12.3/map: 12.3/map:0 12.3/map:0,0,0,1 "
             "12.3/map:0,9,1,1 12.3/map:0x2,1x99999999 x.3/block 12.x/block 12.3/block;block 12.3/1;2;3;4;5 "
             "12.3/1;n1;1x9999999;block 12.3/x;n1;1;block 12.3/-1/block 12.3/block/13;n2;1;block",
             ' ')) {
    EXPECT_FALSE(read_layout(text, *parse_host_list("n[1-2]"), {2, 2})) << text;
  }
}

TEST(LayoutText, LargeClaimsAreRefusedBeforeTheyCost) {
  const auto nodes = *parse_host_list("n[1-2]");
  std::string many = "12.0/";
  for (int i = 0; i < 129; ++i) many += (i == 0 ? "" : "/") + std::string("1;n1;1;block");
  for (const auto& text : {many, std::string("12.0/1;a[1-1048576];1x1048576;block"),
                           std::string("12.0/1;a[1-40000];1x40000;block/1;b[1-40000];1x40000;block"),
                           std::string("12.0/1;a;1048577;block"), std::string("12.0/1;a[1-2];0,1;block"),
                           "12.0/map:" + std::string(60000, '0')}) {
    EXPECT_FALSE(read_layout(text, nodes, {2, 2})) << text.substr(0, 60);
  }
}

TEST(LayoutText, TooIrregularForAVariableIsSaid) {
  std::vector<NodeIndex> map = deal_block(Counts(20000, 2));
  std::mt19937 random(1);
  std::shuffle(map.begin(), map.end(), random);
  EXPECT_EQ(error_of(write_layout(1, 0, {{1, "n[1-20000]", Counts(20000, 2), map}})).code, ErrorCode::kLimit);
}

TEST(Decision, IsReadAsItWasWritten) {
  const StepId id{.job = 12, .step = 3};
  for (const auto set_up : {SetUp::kNothing, SetUp::kTorchrun, SetUp::kWorld, SetUp::kAllSettings}) {
    for (const auto asked : {Asked::kUnasked, Asked::kWeakly, Asked::kStrongly}) {
      const Decision decision{.set_up = set_up,
                              .asked = asked,
                              .is_verbose = true,
                              .is_observed = false,
                              .salt = 0xfedcba9876543210U,
                              .unusable_master = "nowhere.example",
                              .endpoint = {"port=auto", "master_addr=%h-ib0"},
                              .reason = "a; b; c"};
      EXPECT_EQ(read_decision(write_decision(id, decision), id), decision);
      EXPECT_EQ(asks_strongly(write_decision(id, decision)), asked == Asked::kStrongly);
      EXPECT_EQ(read_set_up(cat({write_set_up(set_up), " option:port=2000"})), set_up);
    }
  }
  Decision observed;
  observed.is_observed = true;
  EXPECT_EQ(read_decision(write_decision(id, observed), id), observed);
}

// The reason goes into slurmd's log and to the user's terminal.
TEST(Decision, HoldsPrintableTextAlone) {
  const StepId id{.job = 12, .step = 3};
  Decision decision;
  decision.reason = "\xc3\xa9.py is\na Python script";
  const auto read = read_decision(write_decision(id, decision), id);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->reason, "??.py is?a Python script");
  decision.reason = std::string(5000, 'x');
  EXPECT_TRUE(read_decision(write_decision(id, decision), id));
  for (const auto* text : {"5\t12.3\t0\t0\t1\t0\t\t0\t\ta\nb\t", "5\t12.3\t0\t0\t1\t0\t\t0\t\t\x1b[31m\t",
                           "5\t12.3\t2\t0\t0\t0\ta b\t0\t\t\t"}) {
    EXPECT_FALSE(read_decision(text, id)) << text;
  }
  EXPECT_FALSE(read_decision("5\t12.3\t0\t0\t1\t0\t\t0\t\t" + std::string(5000, 'x') + "\t", id));
}

TEST(Decision, OfAnotherStepOrVersionIsNone) {
  const auto text = write_decision({.job = 12, .step = 3}, Decision{});
  EXPECT_FALSE(read_decision(text, {.job = 12, .step = 4}));
  EXPECT_FALSE(read_decision(text, {.job = 13, .step = 3}));
  const auto of_async = write_decision({.job = 12, .step = kPendingStep}, {});
  EXPECT_TRUE(read_decision(of_async, {.job = 12, .step = 3}));
  EXPECT_FALSE(read_decision(of_async, {.job = 13, .step = 3}));
  EXPECT_FALSE(read_decision("1" + text.substr(1), {.job = 12, .step = 3}));
  for (const auto* other :
       {"", "\t", "5\t12.3\t2\t0\t0\tzz\t\t0\t\t\t", "5\t12.3\t9\t0\t0\t0\t\t0\t\t\t", "5\t12.3\t2"}) {
    EXPECT_FALSE(read_decision(other, {.job = 12, .step = 3})) << other;
    EXPECT_FALSE(asks_strongly(other)) << other;
  }
  // A later version may add fields behind these.
  EXPECT_TRUE(asks_strongly("5\t12.3\tnew\t2\tmore", "12.3"));
  EXPECT_FALSE(asks_strongly("5\t12.3\tnew\t2\tmore", "12.4"));
  EXPECT_FALSE(asks_strongly("5\t12.3\tnew\t1\tmore", "12.3"));
  EXPECT_EQ(read_set_up(""), SetUp::kAllSettings);
  EXPECT_EQ(read_set_up("option:port=2000"), SetUp::kAllSettings);
}

using Arguments = std::vector<std::string>;

TEST(SrunArguments, WhetherAStepAsksForItself) {
  const auto asks = [](const Arguments& arguments) { return asks_for_itself(arguments); };
  EXPECT_TRUE(asks({"--bootstrap=on", "./a"}));
  EXPECT_TRUE(asks({"--bootstrap", "on", "./a"}));
  EXPECT_TRUE(asks({"-N2", "-l", "--gres", "gpu:2", "--bootstrap-gpu=first", "./a"}));
  EXPECT_TRUE(asks({"-n1", "./a", ":", "-n2", "--bootstrap=on", "./a"}));
  EXPECT_FALSE(asks({"--bootstrap=explain", "./a"})) << "what is explained is what happens without it";
  EXPECT_FALSE(asks({"--bootstrap", "off", "./a"}));
  EXPECT_FALSE(asks({"--gres=gpu:2", "./a"}));
  EXPECT_FALSE(asks({"-n2", "./a", "--bootstrap=on"})) << "the program's own";
  for (const auto* flag :
       {"-l", "--bcast", "--compress", "--oom-kill-step", "--send-libs", "--stepmgr", "--test-only", "--x11"}) {
    EXPECT_FALSE(asks({flag, "./prog.sh", "--bootstrap=on"})) << flag << " takes no value";
  }
  EXPECT_FALSE(asks({"--", "./a", "--bootstrap=on"}));
  EXPECT_FALSE(asks({}));
  EXPECT_TRUE(asks({"--bootstrap=on,explain", "./a"}));
  EXPECT_TRUE(asks({"--bootstrap=explain", "--bootstrap-gpu=first", "./a"}));
  EXPECT_FALSE(asks({"--bootstrap-gpu=first", "--bootstrap=off", "./a"}));
  EXPECT_FALSE(asks({"--bootstrap=on", "--bootstrap=auto", "--bootstrap-gpu=first", "./a"}));
}

TEST(SrunArguments, WhichStepsOfAJobMayBeNoWorld) {
  const auto may_be = [](const Arguments& words, const Environment& environment = {}) {
    return may_be_no_world(environment, words);
  };
  EXPECT_TRUE(may_be({"-n2", "--gpus-per-task=1", "/usr/bin/mpirun", "./a"}));
  EXPECT_TRUE(may_be({"--pty", "bash"}));
  EXPECT_TRUE(may_be({"-n2", "python3", "-m", "torch.distributed.run", "train.py"}));
  EXPECT_TRUE(may_be({"-n2", "python3", "-m", "accelerate.commands.launch", "train.py"}));
  EXPECT_TRUE(may_be({"--ntasks-per-gpu=2", "python3", "train.py"}));
  EXPECT_TRUE(may_be({"--ntasks-per-tres", "gres/gpu:2", "python3", "train.py"}));
  EXPECT_TRUE(may_be({"python3", "train.py"}, environment_of({{"SUBMITIT_EXECUTOR", "slurm"}})));
  EXPECT_FALSE(may_be({"-n2", "--gpus-per-task=1", "python3", "train.py"}));
  EXPECT_FALSE(may_be({"--ntasks-per-gpu=1", "python3", "train.py"}));
}

TEST(SrunArguments, Components) {
  EXPECT_TRUE(expects_components(Arguments{"-n1", "a", ":", "-n2", "b"}));
  EXPECT_TRUE(expects_components(Arguments{"--het-group=0,1", "a"}));
  EXPECT_TRUE(expects_components(Arguments{"--het-g=0,1", "a"}));
  EXPECT_FALSE(expects_components(Arguments{"a:b", "::"}));
  for (const auto& several :
       {Arguments{"-n1", "a", ":", "b"}, Arguments{"--het-group=0,1", "a"}, Arguments{"--het-group", "0-1", "a"},
        Arguments{"--pack-group=0,1"}, Arguments{"--het-group"}}) {
    EXPECT_TRUE(has_several_components(several));
  }
  for (const auto& one : {Arguments{"--het-group=1", "a"}, Arguments{"--het-group", "1", "a"}, Arguments{"--het-g=2"},
                          Arguments{"-n2", "a"}}) {
    EXPECT_FALSE(has_several_components(one));
  }
}

TEST(SrunArguments, AnOptionThatStandsAloneTakesNoWordAfterIt) {
  const Arguments arguments{"--bootstrap-gpu-share", "./a", "--bootstrap=off"};
  EXPECT_TRUE(with_arguments(arguments, {}).gpu_share.value);
  EXPECT_EQ(with_arguments(arguments, {}).mode.value, Mode::kAuto);
  EXPECT_FALSE(with_arguments(Arguments{"--bootstrap-gpu-share=off", "./a"}, {}).gpu_share.value);
  EXPECT_EQ(with_arguments(Arguments{"--bootstrap-gpu", "off", "./a"}, {}).gpu.value, GpuMode::kOff);
}

bool implies(const Arguments& arguments, const Environment& environment = {}) {
  return implies_gpu_binding(environment, arguments);
}

TEST(SrunArguments, WhatAStepThatDoesNotExistYetAsksFor) {
  const auto job = environment_of({{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "2"}, {"SLURM_NTASKS_PER_NODE", "3"}});
  const auto size = [](const Arguments& words, const Environment& environment = {}) {
    const auto step = requested_step(environment, words);
    return std::array{step.job, step.tasks, step.nodes};
  };
  EXPECT_EQ(size({"./a", "-n5"}), (std::array{0U, 1U, 1U}));
  EXPECT_EQ(size({"-N2", "--ntasks", "5", "./a"}), (std::array{0U, 5U, 2U}));
  EXPECT_EQ(size({"-N2-4", "--ntasks-per-node=2", "./a"}), (std::array{0U, 4U, 2U}));
  EXPECT_EQ(size({"./a"}, job), (std::array{7U, 6U, 2U}));
  EXPECT_EQ(size({"-n1", "--jobid=8", "./a"}, job), (std::array{8U, 1U, 1U}));
  EXPECT_EQ(size({"./a"}, environment_of({{"SLURM_NTASKS", "4"}})), (std::array{0U, 4U, 1U}));
  const Arguments line{"--async", "-n", "2", "--", "python3", "--async"};
  EXPECT_EQ(program_words(line).size(), 2U);
  EXPECT_TRUE(is_async(line) && is_async(Arguments{"--asy", "./a"}));
  EXPECT_FALSE(is_async(Arguments{"-n2", "./a", "--async"}));
}

TEST(SrunArguments, WhatMakesSlurmBind) {
  EXPECT_TRUE(implies({"--gpus-per-task=1", "./a"}));
  EXPECT_TRUE(implies({"--gpus-per-task", "a100:1", "./a"}));
  EXPECT_TRUE(implies({"--ntasks-per-gpu=2", "./a"}));
  EXPECT_TRUE(implies({"--tres-per-task=gres/gpu:1", "./a"}));
  EXPECT_TRUE(implies({"./a"}, environment_of({{"SLURM_GPUS_PER_TASK", "1"}})));
  EXPECT_TRUE(implies({"./a"}, environment_of({{"SLURM_NTASKS_PER_GPU", "1"}})));
  EXPECT_FALSE(implies({"--gres=gpu:2", "./a"}));
  EXPECT_FALSE(implies({"--gpus-per-node=2", "./a"}));
  EXPECT_FALSE(implies({"--gpus-per-task=0", "./a"}, environment_of({{"SLURM_GPUS_PER_TASK", "1"}})));
  EXPECT_FALSE(implies({"--tres-per-task=cpu:2", "./a"}));
}

TEST(SrunArguments, ReadsAllComponents) {
  EXPECT_TRUE(implies({"-n1", "./a", "x", ":", "--gpus-per-task=1", "./a"}));
  EXPECT_FALSE(implies({"-n1", "./a", ":", "-n1", "./a", "--gpus-per-task=1"}));
}

TEST(SrunArguments, WhatAsksSlurmToBind) {
  const auto asks = [](const Arguments& arguments, const Environment& environment = {}) {
    return asked_gpu_binding(environment, arguments).kind != GpuBind::kNone;
  };
  EXPECT_TRUE(asks({"--gpu-bind=single:1", "./a"}));
  EXPECT_TRUE(asks({"--tres-bind", "gres/gpu:closest", "./a"}));
  EXPECT_TRUE(asks({"--accel-bind=g", "./a"}));
  EXPECT_TRUE(asks({"./a"}, environment_of({{"SLURM_GPU_BIND", "closest"}})));
  EXPECT_FALSE(asks({"--gpu-bind=none", "./a"}, environment_of({{"SLURM_GPU_BIND", "closest"}})));
  EXPECT_FALSE(asks({"--tres-bind=gres/gpu:none", "./a"}));
  EXPECT_FALSE(asks({"--gpus-per-task=1", "./a", "--gpu-bind=closest"}));
  EXPECT_FALSE(asks({"--tres-bind=gres/nic:single:1", "./a"}));
  EXPECT_EQ(asked_gpu_binding({}, Arguments{"--gpu-bind=closest", "./a"}).kind, GpuBind::kClosest);
  EXPECT_EQ(asked_gpu_binding({}, Arguments{"--gpu-bind=verbose,map_gpu:1,0", "./a"}).kind, GpuBind::kNarrow);
}

TEST(SrunArguments, WhichOptionAskedSlurmToBind) {
  const auto option = [](const Arguments& arguments, const Environment& environment = {}) {
    return asked_gpu_binding(environment, arguments).option;
  };
  // As sbatch exports it for --gpu-bind.
  const auto both = environment_of({{"SLURM_GPU_BIND", "single:1"}, {"SLURM_TRES_BIND", "gres/gpu:single:1"}});
  EXPECT_EQ(option({"--gpu-bind=single:1", "./a"}), "--gpu-bind");
  EXPECT_EQ(option({"./a"}, both), "--gpu-bind");
  EXPECT_EQ(option({"--tres-bind=gres/gpu:closest", "./a"}, both), "--tres-bind");
  EXPECT_EQ(option({"./a"}, environment_of({{"SLURM_TRES_BIND", "gres/gpu:single:1"}})), "--tres-bind");
  EXPECT_EQ(option({"--accel-bind=g", "./a"}), "--accel-bind");
}

TEST(SrunArguments, TheUsersBindingReachesTheNodes) {
  for (const auto kind : {GpuBind::kNarrow, GpuBind::kClosest}) {
    const auto read = read_record<UsersBind>(write_record(UsersBind{kind, "--tres-bind"}));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->kind, kind);
    EXPECT_EQ(read->option, "--tres-bind");
  }
  for (const auto* text : {"", "2", "2\t", "narrow:--gpu-bind", "3\t--gpu-bind\t"}) {
    EXPECT_FALSE(read_record<UsersBind>(text)) << text;
  }
}

TEST(SrunArguments, WhatSlurmMadeOfACountIsNotTheUsersBinding) {
  // As sbatch of Slurm 24.11 exports it for --gpus-per-task=1, and srun for --ntasks-per-gpu=1.
  const auto counted =
      environment_of({{"SLURM_TRES_BIND", "gres/gpu:per_task:1"}, {"SLURM_TRES_PER_TASK", "gres/gpu=1"}});
  const auto shared = environment_of({{"SLURM_TRES_BIND", "gres/gpu:single:1"}, {"SLURM_NTASKS_PER_TRES", "1"}});
  for (const auto& environment : {counted, shared}) {
    EXPECT_EQ(asked_gpu_binding(environment, Arguments{"./a"}).kind, GpuBind::kNone);
    EXPECT_TRUE(implies({"./a"}, environment));
    EXPECT_EQ(asked_gpu_binding(environment, Arguments{"--tres-bind=gres/gpu:single:1"}).kind, GpuBind::kNarrow);
  }
  EXPECT_EQ(asked_gpu_binding(environment_of({{"SLURM_TRES_BIND", "gres/gpu:single:1"}}), Arguments{}).kind,
            GpuBind::kNarrow);
  EXPECT_TRUE(implies({"./a"}, environment_of({{"SLURM_TRES_PER_TASK_HET_GROUP_0", "gres/gpu=1"}})));
}

}  // namespace
}  // namespace bootstrap
