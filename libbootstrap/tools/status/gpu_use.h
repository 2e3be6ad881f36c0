// Which process uses which GPU of this node, by NVIDIA's NVML.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace bootstrap {

// "PID INDEX PERCENT UUID" for each process on each GPU. Empty where NVML is not installed or fails. NVML may wait in
// the driver: call this in a process that can be left.
std::vector<std::string> read_gpu_use();

}  // namespace bootstrap
