// Where the GPUs of this node are: from the file that the site names, else from the kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/hardware/topology.h"

namespace bootstrap {

struct NodeTopology {
  Topology topology;
  std::string from;  // for people: the file, or the kernel and why not the file
};

// `file`: as set by topology= in plugstack.conf, with %h for `host`; empty: there is none. Files that cannot be used
// cost nothing but themselves.
NodeTopology read_node_topology(const std::string& file, const std::string& host);

}  // namespace bootstrap
