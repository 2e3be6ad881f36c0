// In place of hwloc_topology.cc where the command is built without hwloc, as for pip.
// SPDX-License-Identifier: Apache-2.0
#include "probe/node_topology.h"

namespace bootstrap {
namespace {

tl::unexpected<Error> refuse() {
  return fail(ErrorCode::kUnsupported,
              "cannot detect the topology: this slurm-bootstrap was built without hwloc; use that of the packages");
}

}  // namespace

Result<Topology> hwloc_topology_of_machine(const std::string& /*root*/) { return refuse(); }

Result<Topology> hwloc_topology_of_xml(const std::string& /*path*/) { return refuse(); }

}  // namespace bootstrap
