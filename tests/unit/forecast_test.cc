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
