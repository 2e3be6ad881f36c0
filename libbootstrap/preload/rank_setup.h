// A rank on a cluster without the plugin: the same plan, and its variables in this process before `main`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/step/step_id.h"

namespace bootstrap {

// For the first process of a rank, with its command line. Changes `environ` as the plugin would have; on rank 0 it
// holds MASTER_PORT until the process ends. What goes wrong is one sentence on standard error, and the program starts
// all the same. False: the process is a launcher, and nothing is set.
bool set_up_rank(Launcher launcher, int count, const char* const* words) noexcept;

// For a process that is no rank of the step its variables are of: a batch script, salloc or a single task that a rank
// has started. What we have set for that rank goes, unless somebody has changed it since.
void forget_outer_rank() noexcept;

}  // namespace bootstrap
