// srun's own options, read before srun has read them.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/srun_arguments.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "core/util/records.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

using Arguments = std::vector<std::string>;

TEST(SrunArguments, ShowWhetherTheStepItselfAsks) {
  const auto asks = [](const Arguments& arguments) { return asks_for_itself(arguments); };
  EXPECT_TRUE(asks({"--bootstrap=on", "./a"}));
  EXPECT_TRUE(asks({"--bootstrap", "on", "./a"}));
  EXPECT_TRUE(asks({"-N2", "-l", "--gres", "gpu:2", "--bootstrap-gpu=first", "./a"}));
  EXPECT_TRUE(asks({"-n1", "./a", ":", "-n2", "--bootstrap=on", "./a"}));
  EXPECT_FALSE(asks({"--bootstrap=explain", "./a"})) << "explain shows the step as it is without explain";
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

TEST(SrunArguments, ShowWhetherTheStepMayBeNoWorld) {
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

TEST(SrunArguments, ShowSeveralComponents) {
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

TEST(SrunArguments, ShowTheSizeOfAStepBeforeItExists) {
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

TEST(SrunArguments, ShowWhatMakesSlurmBind) {
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

TEST(SrunArguments, AreReadInAllComponents) {
  EXPECT_TRUE(implies({"-n1", "./a", "x", ":", "--gpus-per-task=1", "./a"}));
  EXPECT_FALSE(implies({"-n1", "./a", ":", "-n1", "./a", "--gpus-per-task=1"}));
}

TEST(SrunArguments, ShowWhatAsksSlurmToBind) {
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

TEST(SrunArguments, ShowWhichOptionAsksSlurmToBind) {
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
