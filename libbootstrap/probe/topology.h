// The topology of this machine as hwloc finds it, in hwloc's XML. For the command alone: never in slurmstepd.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/result.h"

namespace bootstrap {

// For parse_topology_xml: packages, NUMA nodes, CPUs, and PCI devices with their places, all that the machine has, also
// what this process may not use; GPUs with the device nodes, UUIDs and models that their drivers tell. Tests put a
// `root` before every path. Changes the environment of this process, so call it before there are threads.
Result<std::string> export_topology_xml(const std::string& root = "");

}  // namespace bootstrap
