// This process as a rank of its step: who it is, and what its variables are to be, with the hosts that mpirun knows.
// SPDX-License-Identifier: Apache-2.0
#include "comm/own_task.h"

#include <utility>

#include "comm/pmix/mpirun_hosts.h"
#include "probe/mpirun_context.h"

namespace bootstrap {

Result<TaskPlan> read_own_task(const Environment& environment, Deadline deadline) {
  auto context = read_mpirun_context(environment);
  auto hosts = find_mpirun_hosts(environment, deadline);
  if (!hosts) return fail(hosts.error());
  context.hosts = std::move(*hosts);
  return read_task_plan(environment, context);
}

}  // namespace bootstrap
