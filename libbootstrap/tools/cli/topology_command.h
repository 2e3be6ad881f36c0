// slurm-bootstrap topology: a machine's topology, for a file that slurmstepd reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bootstrap {

struct TopologyOptions {
  std::string output;  // file; empty: standard output
  std::string xml;     // file of lstopo about another machine; empty: this machine
};

// The exit status: 0, or 1 with a sentence.
int topology_command(const TopologyOptions& options);

}  // namespace bootstrap
