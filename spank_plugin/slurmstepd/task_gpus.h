// In the forked child that becomes the task: what it can see of the step's GPUs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/plan/step_plan.h"
#include "spank_api.h"

namespace bootstrap {

// Looks at what Slurm left this task and rewrites its copy of the plan if that is less than planned. Answers with what
// the task has.
Result<GpuView> look_at_gpus(spank_t spank, StepPlan& plan, const Settings& settings, std::size_t local_task,
                             const Place& place);

}  // namespace bootstrap
