// CPUs as the kernel lists them: "0-3,8".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/hardware/cpu_set.h"

namespace bootstrap {

inline CpuSet cpus(std::string_view list) { return *CpuSet::parse_list(list); }

}  // namespace bootstrap
