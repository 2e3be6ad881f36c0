// In the forked child that becomes the task: its binding to the cores near its GPUs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/plan/gpu_variables.h"
#include "core/util/result.h"

namespace bootstrap {

// For --bootstrap-cpu=near: of the cores that the task has, it keeps those near its GPUs, if there are any.
Status bind_near(const NodeGpus& plan, const GpuView& view);

}  // namespace bootstrap
