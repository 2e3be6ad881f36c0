// slurm-bootstrap topology: this machine's topology, for a file that slurmstepd reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bootstrap {

// Writes the file, or standard output when there is no name. The exit status: 0, or 1 with a sentence.
int topology_command(const std::string& path);

}  // namespace bootstrap
