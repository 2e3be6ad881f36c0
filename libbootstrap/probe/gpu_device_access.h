// Whether this process may open a GPU's device node: the question that a device cgroup answers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/plan/node_gpus.h"

namespace bootstrap {

// Asks the kernel without opening: access(2) passes through the same checks as open(2), the device cgroup's among them
// (devcgroup_inode_permission() in Linux' include/linux/device_cgroup.h, for cgroups of version 1 and 2), while the
// first open of an NVIDIA GPU without a persistence daemon takes seconds, since it starts the GPU. The real user id
// counts, as it does for access(2).
GpuVisibility::Access try_device(const std::string& path);

// "/dev/nvidia0" and so on: the numbered files that are there, whoever may open them.
std::vector<std::string> nvidia_device_files();

// Device nodes of these GPUs, in their order; NVIDIA's where no path is known.
std::vector<std::string> device_files_of(const std::vector<Gpu>& gpus);

std::vector<GpuVisibility::Access> try_devices(const std::vector<std::string>& paths);

}  // namespace bootstrap
