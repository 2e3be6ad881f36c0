// The GPU of the calling thread, asked of the driver and of the CUDA runtime that the process has; neither is linked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/result.h"

namespace bootstrap {

// Makes the GPU with this ordinal current in the calling thread, for every CUDA runtime in the process: its primary
// context is made current through the driver (libcuda.so.1). kUnavailable with CUDA's reason.
Status use_gpu(int ordinal);

struct CurrentGpu {
  int ordinal = 0;
  std::string id;  // PCI bus id, the same in every process of the node whatever CUDA_VISIBLE_DEVICES says:
                   // "0000:3b:00.0"; of a MIG instance its UUID
};

// Which GPU the next CUDA call of this thread goes to. Nothing when there is no CUDA in the process; never makes a
// context and never loads CUDA by itself.
std::optional<CurrentGpu> current_gpu();

// Version of the driver as CUDA numbers it (13000 for 13.0); nothing without a driver. Loads libcuda.so.1.
std::optional<int> driver_version();

}  // namespace bootstrap
