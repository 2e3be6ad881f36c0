// slurm-bootstrap run: a check, a Horovod world where it is asked for, and then the program in place of this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace bootstrap {

struct RunOptions {
  bool keep_going = false;  // start the program also when something failed
  bool horovod = false;     // make the ranks one Horovod world first
  std::chrono::seconds timeout{10};
  std::vector<std::string> program;  // and its arguments; not empty
};

// The exit status when the program was not started: that of `check`, or 126 or 127 as shells have it.
int run_command(const RunOptions& options);

}  // namespace bootstrap
