// The topology of this machine from /sys and /proc, without a library: for slurmstepd, at every start of a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/hardware/topology.h"

namespace bootstrap {

// Tests put a `root` before every path. What is not there is not known, and no error: a machine without /proc/driver
// has no NVIDIA GPUs. Reads about 30 small files on a node of 8 GPUs; changes nothing, keeps nothing, takes no lock.
Topology read_sysfs_topology(const std::string& root = "");

}  // namespace bootstrap
