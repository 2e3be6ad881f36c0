// A task's list of GPUs is still the plan's, or was changed.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/plan/step_plan.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

TEST(OwnGpuList, AListOfTheProgramIsNotOurs) {
  auto environment = two_by_two(1);
  const auto planned = read_task_plan(environment);
  ASSERT_TRUE(planned);
  for (const auto& variable : planned->plan.variables) environment.set(variable.name, variable.value(0));
  const auto untouched = read_task_plan(environment);
  ASSERT_TRUE(untouched);
  EXPECT_TRUE(has_our_gpu_list(*untouched));
  for (const char* const list : {"1", "1,0"}) {
    environment.set("CUDA_VISIBLE_DEVICES", list);
    const auto changed = read_task_plan(environment);
    ASSERT_TRUE(changed);
    EXPECT_FALSE(changed->plan.gpus && has_our_gpu_list(*changed)) << list;
  }
}

// In a world that was not asked for, the list of GPUs stays Slurm's and is in no record of ours.
TEST(OwnGpuList, InAWorldItStaysSlurms) {
  auto environment = two_by_two(1);
  const auto step = read_task_plan(environment);
  ASSERT_TRUE(step);
  environment.set("SLURM_BOOTSTRAP_STEP", step_tag(step->facts.id));
  environment.set("SLURM_BOOTSTRAP_SETTINGS", "set_up:world");
  const auto planned = read_task_plan(environment);
  ASSERT_TRUE(planned);
  auto set_up = environment;
  for (const auto& variable : planned->plan.variables) {
    if (variable.action != Action::kKept) set_up.set(variable.name, variable.value(0));
  }
  EXPECT_EQ(set_up.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_VISIBLE_DEVICES"));
  const auto untouched = read_task_plan(set_up);
  ASSERT_TRUE(untouched);
  EXPECT_TRUE(has_our_gpu_list(*untouched));
  EXPECT_EQ(effective_value(untouched->plan, "BOOTSTRAP_GPU"), "1");
  // A list of one, from a program or another plugin.
  auto narrowed = set_up;
  narrowed.set("CUDA_VISIBLE_DEVICES", "1");
  const auto own = read_task_plan(narrowed);
  ASSERT_TRUE(own);
  EXPECT_FALSE(own->plan.gpus && has_our_gpu_list(*own));
}

TEST(OwnGpuList, AListThatSlurmNarrowedIsTheTasks) {
  auto environment = with(two_by_two(1), {{"SLURM_GPUS_ON_NODE", "2"}, {"CUDA_VISIBLE_DEVICES", "1"}});
  const auto task = read_task_plan(environment);
  ASSERT_TRUE(task);
  EXPECT_EQ(effective_value(task->plan, "BOOTSTRAP_GPU"), "0");
  EXPECT_EQ(effective_value(task->plan, "LOCAL_RANK"), "0");
  environment.set("SLURM_GPUS_ON_NODE", "1");  // control: one GPU for two tasks
  const auto shared = read_task_plan(environment);
  ASSERT_TRUE(shared);
  EXPECT_EQ(effective_value(shared->plan, "BOOTSTRAP_GPU"), "");
  EXPECT_EQ(effective_value(shared->plan, "LOCAL_RANK"), "1");
}

}  // namespace
}  // namespace bootstrap
