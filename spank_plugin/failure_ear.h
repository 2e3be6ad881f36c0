// In srun: hears from the nodes which task failed first, and says so when the step has ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bootstrap {

// Before srun copies its environment for the tasks: SLURM_BOOTSTRAP_FAILURE tells the nodes where. Without a socket
// the step runs without that last line.
void open_failure_ear();

// The environment of a step that is none of ours.
void forget_outer_failure_ear();

// The first that was heard of, if any, in one sentence.
void tell_first_failure();

}  // namespace bootstrap
