// Where the GPUs of this node are: from the file that the site names, else from the kernel.
// SPDX-License-Identifier: Apache-2.0
#include "probe/node_topology.h"

#include <utility>

#include "core/util/text.h"
#include "probe/sysfs_topology.h"
#include "probe/topology_file.h"

namespace bootstrap {
namespace {

// "/etc/slurm/%h.txt" for node001 is "/etc/slurm/node001.txt".
std::string with_host(const std::string& path, const std::string& host) {
  std::string named;
  for (std::size_t at = 0; at < path.size(); ++at) {
    const bool is_host = path.compare(at, 2, "%h") == 0;
    named += is_host ? host : std::string(1, path[at]);
    if (is_host) ++at;
  }
  return named;
}

}  // namespace

NodeTopology read_node_topology(const std::string& file, const std::string& host) {
  if (file.empty()) return {read_sysfs_topology(""), "the kernel (/sys, /proc)"};
  const auto path = with_host(file, host);
  auto topology = read_topology_file(path);
  if (topology) return {std::move(*topology), path};
  return {read_sysfs_topology(""), cat({"the kernel (/sys, /proc), because ", topology.error().message})};
}

}  // namespace bootstrap
