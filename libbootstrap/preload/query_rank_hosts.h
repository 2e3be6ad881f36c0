// Where the ranks of mpirun are, asked before `main` in a process of its own, which the program never notices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/util/result.h"

namespace bootstrap {

// Comes back within ten seconds. A process of its own, since a program may have a getenv(3) of its own that answers
// nothing to libpmix before `main` (bash has), and so that no thread, library or memory of PMIx stays in this one.
Result<std::vector<std::string>> query_rank_hosts();

}  // namespace bootstrap
