// In the forked child that becomes the task: its binding to the cores near its GPUs.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/cpu_binding.h"

#include "probe/own_process.h"

namespace bootstrap {

Status bind_near(const NodeGpus& plan, const GpuView& view) {
  const auto cores = cores_of(0);
  const auto near = cores & cores_near(plan, view);
  if (near.empty() || near == cores) return {};
  return bind_to(near);
}

}  // namespace bootstrap
