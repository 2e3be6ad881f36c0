// Where the GPUs of this node are: from the file that the site names, else from the kernel.
// SPDX-License-Identifier: Apache-2.0
#include "probe/node_topology.h"

#include <utility>

#include "core/util/text.h"
#include "probe/sysfs_topology.h"
#include "probe/topology_file.h"

namespace bootstrap {
NodeTopology read_node_topology(const std::string& file, const std::string& host) {
  if (file.empty()) return {read_sysfs_topology(""), "the kernel (/sys, /proc)"};
  const auto path = replaced(file, "%h", host);
  auto topology = read_topology_file(path);
  if (topology) return {std::move(*topology), path};
  return {read_sysfs_topology(""), cat({"the kernel (/sys, /proc), because ", topology.error().message})};
}

}  // namespace bootstrap
