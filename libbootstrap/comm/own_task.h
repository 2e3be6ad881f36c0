// This process as a rank of its step: its identity, and the variables that it should have.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/plan/step_plan.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// Reads the environment alone. Fails with kMissing outside of a step, and with kUnsupported under mpirun on several
// nodes, where the hosts of the other ranks are not known.
Result<TaskPlan> read_own_task(const Environment& environment);

}  // namespace bootstrap
