// slurm-bootstrap explain: what this task was given and why.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bootstrap {

struct ExplainOptions {
  bool json = false;
  bool gpus = false;                  // a picture of the node, as text
  std::string topology;               // file; empty: as slurmstepd finds it
  std::string environment;            // file with a captured one, - is standard input; empty: this process's
  std::optional<std::uint32_t> rank;  // say nothing in the others
};

// The exit status: 0, or 1 with a sentence on standard error.
int explain_command(const ExplainOptions& options);

}  // namespace bootstrap
