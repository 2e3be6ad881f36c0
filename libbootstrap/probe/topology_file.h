// The topology in a file that `slurm-bootstrap topology` wrote before.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/hardware/topology.h"
#include "core/util/result.h"

namespace bootstrap {

// It says which device node is which GPU to slurmstepd, so it is refused when anybody else could have written
// it: another owner than root and this process's user, or write permission for group or others.
Result<Topology> read_topology_file(const std::string& path);

}  // namespace bootstrap
