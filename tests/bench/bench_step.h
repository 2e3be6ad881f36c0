// The step that plans are made for when their cost is measured: eight tasks and GPUs on each node.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "core/step/step_facts.h"

namespace bootstrap {

inline Environment environment_of_step(std::int64_t nodes) {
  Environment environment;
  // As many other variables as a login environment has.
  for (int i = 0; i < 120; ++i) environment.set("SOME_VARIABLE_" + std::to_string(i), std::string(60, 'x'));
  const auto last = std::to_string(100000 + nodes).substr(1);
  environment.set("SLURM_JOB_ID", "12");
  environment.set("SLURM_STEP_NODELIST", "node[00001-" + last + "]");
  environment.set("SLURM_STEP_TASKS_PER_NODE", "8(x" + std::to_string(nodes) + ")");
  environment.set("SLURM_STEP_NUM_TASKS", std::to_string(nodes * 8));
  environment.set("SLURM_BOOTSTRAP_LAYOUT", "12.0/block");
  environment.set("SLURM_STEP_GPUS", "0,1,2,3,4,5,6,7");
  environment.set("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7");
  return environment;
}

inline LocalTasks tasks_of_node() {
  LocalTasks local;
  local.host = "node00001";
  local.ranks = {0, 1, 2, 3, 4, 5, 6, 7};
  return local;
}

inline constexpr StepId kStepId{.job = 12, .step = 0, .restart = 0};

}  // namespace bootstrap
