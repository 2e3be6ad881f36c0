// What a rank of mpirun has around it: the name of its node, and its GPUs.
// SPDX-License-Identifier: Apache-2.0
#include "probe/mpirun_context.h"

#include <sys/utsname.h>

#include <algorithm>

#include "core/step/step_facts.h"
#include "probe/gpu_device_access.h"

namespace bootstrap {

MpirunContext read_mpirun_context(const Environment& environment) {
  MpirunContext around;
  if (!is_mpirun_rank(environment)) return around;
  utsname name{};
  if (::uname(&name) == 0) around.host = name.nodename;
  const auto sights = try_devices(nvidia_device_files());
  around.gpus = static_cast<std::size_t>(std::count(sights.begin(), sights.end(), GpuVisibility::Access::kOpen));
  return around;
}

}  // namespace bootstrap
