// The pause of a young rank before its first message to another node, on releases of Slurm that would lose it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/exchange.h"

namespace bootstrap {

// Waits until all nodes have started their tasks (core/launch_wait.h), by the age of this process, and for half of the
// time to the deadline at most. It is younger than its task where that is a shell, and then waits longer than it must.
void pause_for_launch(Deadline deadline);

}  // namespace bootstrap
