// The topology of a machine as hwloc finds it. For the command alone: never in slurmstepd.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/hardware/topology.h"
#include "core/util/result.h"

namespace bootstrap {

// Of this machine, also what this process may not use; GPUs with the device nodes, UUIDs and models that their drivers
// tell. Tests put a `root` before every path. Changes the environment of this process, so call it before there are
// threads.
Result<Topology> hwloc_topology_of_machine(const std::string& root = "");

// Of the machine that this file is about, in hwloc's XML, as `lstopo --of xml` writes it. It has no device nodes of
// NVIDIA's GPUs.
Result<Topology> hwloc_topology_of_xml(const std::string& path);

}  // namespace bootstrap
