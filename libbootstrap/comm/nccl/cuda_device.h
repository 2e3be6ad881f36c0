// The GPU of the calling thread, asked of CUDA's driver and runtime, or of HIP, as the process has them; none is
// linked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "comm/nccl/gpu_libraries.h"
#include "core/util/result.h"

namespace bootstrap {

// Makes the GPU with this ordinal current in the calling thread, for every CUDA runtime in the process: its primary
// context is made current through the driver (libcuda.so.1). On AMD's it is hipSetDevice. kUnavailable with the reason
// of CUDA or HIP.
Status use_gpu(int ordinal);

struct CurrentGpu {
  int ordinal = 0;
  std::string id;  // PCI bus id, the same in every process of the node whatever lists of GPUs it has:
                   // "0000:3b:00.0"; of a MIG instance its UUID
};

// Which GPU the next call of this thread to CUDA or HIP goes to. Nothing when neither is in the process; never makes a
// context and never loads one by itself.
std::optional<CurrentGpu> current_gpu();

// Version of NVIDIA's driver as CUDA numbers it (13000 for 13.0); nothing without a driver. Loads libcuda.so.1.
std::optional<int> driver_version();

// Why CUDA or HIP has no device for this process: no driver, or none that it shows. Nothing when there is one, whether
// or not it can be used. Loads libcuda.so.1 or libamdhip64.so.
std::optional<std::string> why_no_gpu();

// A function of CUDA's driver or of HIP, for those that need more of it; null where there is none. Loads one of them.
void* find_gpu_function(const GpuCall& call);
inline constexpr int kGpuSuccess = 0;  // what CUDA's driver and runtime, and HIP return
std::string gpu_reason(int code);      // "out of memory (2)"

}  // namespace bootstrap
