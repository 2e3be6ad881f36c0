// Which host each rank of mpirun is on, asked of its PMIx server.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/exchange.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// In a process of its own: one session, no fence, since the server knows it from the start. Comes back when all ranks
// of this node have closed theirs, or at the deadline, so that no fence of theirs begins before. May block for ever.
Result<std::vector<std::string>> ask_mpirun_hosts(const Environment& environment, Deadline deadline);

// In the rank itself, on a thread of its own, so that it comes back at the deadline; asked once in the life of a
// process. Empty in a rank that needs no answer: Slurm's, or one whose ranks are all on this node.
Result<std::vector<std::string>> find_mpirun_hosts(const Environment& environment, Deadline deadline);

}  // namespace bootstrap
