// slurm-bootstrap topology: this machine's topology, for a file that slurmstepd reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace bootstrap {

void add_topology_command(CLI::App& app, int& status);

}  // namespace bootstrap
