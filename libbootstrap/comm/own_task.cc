// This process as a rank of its step: its identity, and the variables that it should have.
// SPDX-License-Identifier: Apache-2.0
#include "comm/own_task.h"

#include "probe/mpirun_context.h"

namespace bootstrap {

Result<TaskPlan> read_own_task(const Environment& environment) {
  auto task = read_task_plan(environment, read_mpirun_context(environment));
  if (!task || task->facts.knows_hosts) return task;
  return fail(ErrorCode::kUnsupported,
              "under mpirun on several nodes the hosts of the other ranks are not known; start the program with srun");
}

}  // namespace bootstrap
