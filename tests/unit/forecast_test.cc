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

}  // namespace
}  // namespace bootstrap
