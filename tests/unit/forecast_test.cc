// The guess that srun's defaults hang on.
// SPDX-License-Identifier: Apache-2.0
#include "core/forecast.h"

#include <gtest/gtest.h>

#include <vector>

#include "step_environment.h"

namespace bootstrap {
namespace {

using Arguments = std::vector<std::string>;

bool expects(const Arguments& arguments, const Environment& environment = {}, const Settings& settings = {}) {
  return expects_to_apply(environment, arguments, settings);
}

TEST(Forecast, GpusOnTheCommandLineOrInTheJob) {
  for (const auto& arguments : {Arguments{"srun", "--gres=gpu:2", "./a"}, Arguments{"srun", "--gres", "gpu:2", "./a"},
                                Arguments{"srun", "--gpus=2", "./a"}, Arguments{"srun", "-G2", "./a"},
                                Arguments{"srun", "-G", "2"}, Arguments{"srun", "--gpus-per-task=1"},
                                Arguments{"srun", "--ntasks-per-gpu=1"}, Arguments{"srun", "--bootstrap=on"}}) {
    EXPECT_TRUE(expects(arguments)) << arguments[1];
  }
  EXPECT_TRUE(expects({"srun", "./a"}, environment_of({{"SLURM_JOB_GPUS", "0"}})));
  EXPECT_TRUE(expects({"srun", "./a"}, environment_of({{"SLURM_GRES", "gpu:1"}})));
}

TEST(Forecast, ReadsOptionsAsSrunDoes) {
  EXPECT_TRUE(expects({"srun", "--bootstrap", "on", "./a"}));
  EXPECT_TRUE(expects({"srun", "--bootstrap=explain,on", "./a"}));
  EXPECT_TRUE(expects({"srun", "--gres", "tmp:1,gpu:2", "./a"}));
  EXPECT_TRUE(expects({"srun", "--tres-per-task", "gres/gpu:1", "./a"}));
  EXPECT_FALSE(expects({"srun", "--gres=gpu:2", "--gres=none", "./a"}));
  EXPECT_FALSE(expects({"srun", "-G0", "./a"}, environment_of({{"SLURM_JOB_GPUS", "0"}})));
  EXPECT_FALSE(expects({"srun", "--gres=none", "./a"}, environment_of({{"SLURM_JOB_GPUS", "0"}})));
  EXPECT_FALSE(expects({"srun", "--bootstrap=on", "--bootstrap=off", "./a"}));
}

TEST(Forecast, WhereNothingIsSaidOfGpusTheJobDecides) {
  const auto is_left = [](const Arguments& arguments, const Environment& environment = {}) {
    return leaves_it_to_the_job(environment, arguments, {});
  };
  EXPECT_TRUE(is_left({"srun", "--het-group=0,1", "./a"}));
  EXPECT_FALSE(is_left({"srun", "--gres=gpu:1", "./a"}));
  EXPECT_FALSE(is_left({"srun", "--gres=none", "./a"}));
  EXPECT_FALSE(is_left({"srun", "./a"}, environment_of({{"SLURM_GRES", "gpu:1"}})));
  EXPECT_FALSE(is_left({"srun", "--bootstrap=off", "./a"}));
}

TEST(Forecast, OneComponentWithGpusIsEnoughForAll) {
  EXPECT_TRUE(expects({"srun", "-n1", "./a", ":", "-n2", "--gres=gpu:2", "./a"}));
  EXPECT_TRUE(expects({"srun", "--gres=gpu:2", "./a", ":", "--gres=none", "./a"}));
  EXPECT_FALSE(expects({"srun", "--gres=gpu:2", "--gres=none", "./a", ":", "-n2", "./a"}));
}

TEST(Forecast, OnlyThePartitionsOfTheSite) {
  Settings settings;
  settings.partitions.value = "gpu,pilot";
  const auto in_job = [](const char* partition) {
    return environment_of({{"SLURM_JOB_PARTITION", partition}, {"SLURM_PARTITION", "gpu"}});
  };
  EXPECT_TRUE(expects({"srun", "-p", "pilot", "-G1", "./a"}, {}, settings));
  EXPECT_TRUE(expects({"srun", "-pgpu", "-G1", "./a"}, {}, settings));
  EXPECT_TRUE(expects({"srun", "--partition=gpu,pilot", "-G1", "./a"}, {}, settings));
  EXPECT_TRUE(expects({"srun", "-G1", "./a"}, in_job("pilot"), settings));
  EXPECT_TRUE(expects({"srun", "-G1", "./a"}, environment_of({{"SLURM_PARTITION", "gpu"}}), settings));
  EXPECT_FALSE(expects({"srun", "--partition=gpu,old", "-G1", "./a"}, {}, settings)) << "it may run in either";
  EXPECT_FALSE(expects({"srun", "-p", "old", "-G1", "./a"}, environment_of({{"SLURM_PARTITION", "gpu"}}), settings));
  EXPECT_FALSE(expects({"srun", "-G1", "./a"}, in_job("old"), settings));
  EXPECT_FALSE(expects({"srun", "-G1", "./a"}, {}, settings));
  EXPECT_TRUE(expects({"srun", "-p", "old", "--bootstrap=on", "./a"}, {}, settings)) << "the user's word";
  settings.partitions.value = "pilot,default";
  EXPECT_TRUE(expects({"srun", "-G1", "./a"}, {}, settings));
}

TEST(Forecast, TheProgramsOwnArgumentsAreNotSruns) {
  EXPECT_FALSE(expects({"srun", "-n2", "bash", "-c", "true", "x", "--gpus=2"}));
  EXPECT_FALSE(expects({"srun", "-n", "2", "./a", "--gpus=2"}));
  EXPECT_FALSE(expects({"srun", "--", "./a", "--gres=gpu:1"}));
  EXPECT_FALSE(expects({"srun", "-n2", "./a", "--bootstrap=on"}));
  EXPECT_FALSE(expects({"srun"}));
  EXPECT_FALSE(expects({}));
}

TEST(Forecast, OtherStepsAreLeftAlone) {
  EXPECT_FALSE(expects({"srun", "-n4", "./a", "--gres=disk"}));
  EXPECT_FALSE(expects({"srun", "--gres=gpu:2", "--bootstrap=off", "./a"}));
  EXPECT_FALSE(expects({"srun", "--gres=gpu:2"}, environment_of({{"SUBMITIT_EXECUTOR", "slurm"}})));
  Settings settings;
  settings.when.value = When::kAsked;
  EXPECT_FALSE(expects({"srun", "--gres=gpu:2"}, {}, settings));
  settings.when.value = When::kAlways;
  EXPECT_TRUE(expects({"srun", "-n4"}, {}, settings));
  settings.mode.value = Mode::kOff;
  EXPECT_FALSE(expects({"srun", "-n4"}, {}, settings));
}

TEST(Forecast, Components) {
  EXPECT_TRUE(expects_components(Arguments{"srun", "-n1", "a", ":", "-n2", "b"}));
  EXPECT_TRUE(expects_components(Arguments{"srun", "--het-group=0,1", "a"}));
  EXPECT_FALSE(expects_components(Arguments{"srun", "a:b", "::"}));
}

TEST(Forecast, AnOptionThatStandsAloneTakesNoWordAfterIt) {
  const Arguments arguments{"srun", "--bootstrap-gpu-share", "./a", "--bootstrap=off"};
  EXPECT_TRUE(with_arguments(arguments, {}).gpu_share.value);
  EXPECT_EQ(with_arguments(arguments, {}).mode.value, Mode::kAuto);
  EXPECT_FALSE(with_arguments(Arguments{"srun", "--bootstrap-gpu-share=off", "./a"}, {}).gpu_share.value);
  EXPECT_EQ(with_arguments(Arguments{"srun", "--bootstrap-gpu", "off", "./a"}, {}).gpu.value, GpuMode::kOff);
}

bool implies(const Arguments& arguments, const Environment& environment = {}) {
  return implies_gpu_binding(environment, arguments);
}

TEST(Forecast, WhatMakesSlurmBind) {
  EXPECT_TRUE(implies({"srun", "--gpus-per-task=1", "./a"}));
  EXPECT_TRUE(implies({"srun", "--gpus-per-task", "a100:1", "./a"}));
  EXPECT_TRUE(implies({"srun", "--ntasks-per-gpu=2", "./a"}));
  EXPECT_TRUE(implies({"srun", "--tres-per-task=gres/gpu:1", "./a"}));
  EXPECT_TRUE(implies({"srun", "./a"}, environment_of({{"SLURM_GPUS_PER_TASK", "1"}})));
  EXPECT_TRUE(implies({"srun", "./a"}, environment_of({{"SLURM_NTASKS_PER_GPU", "1"}})));
  EXPECT_FALSE(implies({"srun", "--gres=gpu:2", "./a"}));
  EXPECT_FALSE(implies({"srun", "--gpus-per-node=2", "./a"}));
  EXPECT_FALSE(implies({"srun", "--gpus-per-task=0", "./a"}, environment_of({{"SLURM_GPUS_PER_TASK", "1"}})));
  EXPECT_FALSE(implies({"srun", "--tres-per-task=cpu:2", "./a"}));
}

TEST(Forecast, OneOptionThatAsksForGpusIsEnough) {
  EXPECT_TRUE(expects({"srun", "--gpus-per-task=1", "--gres=tmpfs:1", "./a"}));
  EXPECT_TRUE(expects({"srun", "--gres=gpu:2", "--tres-per-task=license/x:1", "./a"}));
  EXPECT_TRUE(expects({"srun", "--gres=shard:4", "./a"}));
  EXPECT_TRUE(expects({"srun", "--gres=mps:50", "./a"}));
  EXPECT_FALSE(expects({"srun", "--gres=tmpfs:1", "./a"}, environment_of({{"SLURM_JOB_GPUS", "0"}})));
  EXPECT_FALSE(expects({"srun", "-G2", "--gpus=0", "./a"}));
}

TEST(Forecast, ReadsAllComponents) {
  EXPECT_TRUE(implies({"srun", "-n1", "./a", "x", ":", "--gpus-per-task=1", "./a"}));
  EXPECT_FALSE(implies({"srun", "-n1", "./a", ":", "-n1", "./a", "--gpus-per-task=1"}));
  EXPECT_TRUE(expects({"srun", "-n1", "./a", ":", "--gres", "gpu:1", "./a"}));
}

TEST(Forecast, WhatAsksSlurmToBind) {
  const auto asks = [](const Arguments& arguments, const Environment& environment = {}) {
    return asked_gpu_binding(environment, arguments) != GpuBind::kNone;
  };
  EXPECT_TRUE(asks({"srun", "--gpu-bind=single:1", "./a"}));
  EXPECT_TRUE(asks({"srun", "--tres-bind", "gres/gpu:closest", "./a"}));
  EXPECT_TRUE(asks({"srun", "--accel-bind=g", "./a"}));
  EXPECT_TRUE(asks({"srun", "./a"}, environment_of({{"SLURM_GPU_BIND", "closest"}})));
  EXPECT_FALSE(asks({"srun", "--gpu-bind=none", "./a"}, environment_of({{"SLURM_GPU_BIND", "closest"}})));
  EXPECT_FALSE(asks({"srun", "--tres-bind=gres/gpu:none", "./a"}));
  EXPECT_FALSE(asks({"srun", "--gpus-per-task=1", "./a", "--gpu-bind=closest"}));
  EXPECT_FALSE(asks({"srun", "--tres-bind=gres/nic:single:1", "./a"}));
  EXPECT_EQ(asked_gpu_binding({}, Arguments{"srun", "--gpu-bind=closest", "./a"}), GpuBind::kClosest);
  EXPECT_EQ(asked_gpu_binding({}, Arguments{"srun", "--gpu-bind=verbose,map_gpu:1,0", "./a"}), GpuBind::kNarrow);
}

TEST(Forecast, WhatSlurmMadeOfACountIsNotTheUsersBinding) {
  // As sbatch of Slurm 24.11 exports it for --gpus-per-task=1, and srun for --ntasks-per-gpu=1.
  const auto counted =
      environment_of({{"SLURM_TRES_BIND", "gres/gpu:per_task:1"}, {"SLURM_TRES_PER_TASK", "gres/gpu=1"}});
  const auto shared = environment_of({{"SLURM_TRES_BIND", "gres/gpu:single:1"}, {"SLURM_NTASKS_PER_TRES", "1"}});
  for (const auto& environment : {counted, shared}) {
    EXPECT_EQ(asked_gpu_binding(environment, Arguments{"srun", "./a"}), GpuBind::kNone);
    EXPECT_TRUE(implies({"srun", "./a"}, environment));
    EXPECT_EQ(asked_gpu_binding(environment, Arguments{"srun", "--tres-bind=gres/gpu:single:1"}), GpuBind::kNarrow);
  }
  EXPECT_EQ(asked_gpu_binding(environment_of({{"SLURM_TRES_BIND", "gres/gpu:single:1"}}), Arguments{"srun"}),
            GpuBind::kNarrow);
  EXPECT_TRUE(implies({"srun", "./a"}, environment_of({{"SLURM_TRES_PER_TASK_HET_GROUP_0", "gres/gpu=1"}})));
  EXPECT_TRUE(expects({"srun", "./a"}, environment_of({{"SLURM_TRES_PER_TASK_HET_GROUP_1", "gres/gpu=1"}})));
}

}  // namespace
}  // namespace bootstrap
