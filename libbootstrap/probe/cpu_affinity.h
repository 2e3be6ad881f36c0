// The CPUs that a process may run on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "core/hardware/cpu_set.h"
#include "core/util/result.h"

namespace bootstrap {

CpuSet cores_of(pid_t process);  // 0: the caller; empty when the kernel does not tell

Status bind_to(const CpuSet& cores);  // the calling thread; precondition: not empty

}  // namespace bootstrap
