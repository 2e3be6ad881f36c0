// Reads a topology from the XML that hwloc writes (version 2 of its format) and `slurm-bootstrap topology` with it. For
// slurmstepd, where hwloc itself would load X11 and OpenCL plugins.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/result.h"
#include "core/topology.h"

namespace bootstrap {

// Facts that hwloc does not know are `info` children of a PCI device object, added by `slurm-bootstrap topology`.
inline constexpr std::string_view kDeviceInfo = "BootstrapDevice";  // device node: "/dev/nvidia0"
inline constexpr std::string_view kUuidInfo = "BootstrapUUID";      // "GPU-1234..."

// A file of hwloc alone, as `lstopo --of xml` writes it, is read as well; GPUs have no device node and UUID then.
Result<Topology> parse_topology_xml(std::string_view text);

}  // namespace bootstrap
