// The GPU of the calling thread, asked of the driver and of the CUDA runtime that the process has; neither is linked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/util/result.h"

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

// Why CUDA has no device for this process: no driver, or none that it shows. Nothing when there is one, whether or not
// it can be used. Loads libcuda.so.1.
std::optional<std::string> why_no_gpu();

// A function of the driver, for those that need more of it; null where there is none. Loads libcuda.so.1.
void* find_cuda_function(const char* name);
std::string cuda_reason(int code);  // "out of memory (2)"

}  // namespace bootstrap
