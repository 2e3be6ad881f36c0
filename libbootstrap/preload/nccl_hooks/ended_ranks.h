// Which ranks of this node have ended, by what the kernel says of slurmstepd's children.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <vector>

#include "core/step/rank_layout.h"

namespace bootstrap {

// Ranks on the node of `rank` whose first process, the one that slurmstepd started, is no longer there. `task` is that
// of this rank. Empty where that cannot be told: below mpirun, in a PID namespace, where /proc hides processes.
std::vector<Rank> ended_ranks(const Layout& layout, Rank rank, pid_t task, const char* proc = "/proc");

}  // namespace bootstrap
