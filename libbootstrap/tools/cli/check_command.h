// slurm-bootstrap check: what works in this step, for all its ranks in one table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace bootstrap {

struct CheckOptions {
  bool json = false;
  bool local = false;                // this machine alone
  std::chrono::seconds timeout{10};  // for all ranks to come
};

// The exit status: 0, 1 when something failed, 2 outside a step.
int check_command(const CheckOptions& options);

}  // namespace bootstrap
