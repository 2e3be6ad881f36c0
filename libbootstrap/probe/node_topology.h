// The topology of this node: from a file of the site, from /sys and /proc, or from hwloc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/hardware/topology.h"
#include "core/util/result.h"

namespace bootstrap {

struct NodeTopology {
  Topology topology;
  std::string from;  // the file, or the kernel and why the file is not used
};

// `file`: the value of topology= in plugstack.conf, with %h for `host`; empty: none. The kernel answers if the file
// cannot be used.
NodeTopology read_node_topology(const std::string& file, const std::string& host);

// From /sys and /proc, without a library, for slurmstepd. Tests put a `root` before every path. A file that does not
// exist is no error: a machine without /proc/driver has no NVIDIA GPUs. Reads about 30 small files on a node of 8 GPUs.
Topology read_sysfs_topology(const std::string& root = "");

// A file that `slurm-bootstrap topology` wrote. slurmstepd takes the device files of GPUs from it, so it is refused if
// its owner is neither root nor this process's user, or if group or others may write to it.
Result<Topology> read_topology_file(const std::string& path);

// This machine by hwloc, for the command alone: never in slurmstepd. With CPUs that this process may not use, and with
// device files, UUIDs and models from the GPUs' drivers. Changes the environment: call it before there are threads.
Result<Topology> hwloc_topology_of_machine(const std::string& root = "");

// From hwloc's XML, as `lstopo --of xml` writes it. It has no device files of NVIDIA's GPUs.
Result<Topology> hwloc_topology_of_xml(const std::string& path);

}  // namespace bootstrap
