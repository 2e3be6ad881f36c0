// This process as a rank of its step: who it is, and what its variables are to be, with the hosts that mpirun knows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/process/deadline.h"
#include "core/plan/plan_from_environment.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// Under srun the environment alone is read. Under mpirun on several nodes its server is asked, until the deadline.
// Fails with kMissing outside of a step.
Result<TaskPlan> read_own_task(const Environment& environment, Deadline deadline);

}  // namespace bootstrap
