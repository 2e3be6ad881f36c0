// In srun: receives from the nodes which tasks failed, names the first one, and ends a step that was to end after it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/step/step_id.h"

namespace bootstrap {

struct FailurePolicy {
  StepId id;
  std::vector<std::uint32_t> jobs;  // whose tasks these are: of a heterogeneous job, that of each component
  std::uint32_t tasks = 0;          // of the whole step
  // A step that was asked for is ended: this many seconds after its first failure, unless --bootstrap-grace=off, and at
  // once when a node could not set its tasks up. Any other is never ended.
  bool is_asked = false;
  std::optional<std::uint32_t> grace;  // nothing: off
  bool reports_for_itself = false;     // see core/failure/failure.h: nothing is received
};

// In local_user_init, for a step that is set up: opens the socket, starts the thread, and puts SLURM_BOOTSTRAP_FAILURE
// into srun's environment for the nodes. Without a socket or a thread the step runs without those lines.
void start_failure_receiver(const FailurePolicy& policy);

// The last hook: says what is left to say. Waits a few seconds at most for a slurmctld that does not answer.
void end_failure_receiver();

}  // namespace bootstrap
