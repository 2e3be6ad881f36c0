// The GPUs of this node and the CPUs near them, from /sys and /proc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/hardware/gpu_list.h"

namespace bootstrap {

// Returns the GPUs in order of PCI address, in which Slurm and CUDA count. Uses no library: slurmstepd calls it at the
// start of a step. Reads four small files for each GPU. Tests put a `root` before every path. A file that does not
// exist is no error: a machine without /proc/driver/nvidia has no GPUs of NVIDIA.
std::vector<Gpu> read_gpus(const std::string& root = "");

}  // namespace bootstrap
