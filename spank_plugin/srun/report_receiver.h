// In srun: receives what the nodes report, names the first failure and the nodes that have not confirmed their tasks,
// and ends a step that is to end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/step/rank_layout.h"
#include "core/step/step_id.h"

namespace bootstrap {

struct ReportPolicy {
  StepId id;
  std::vector<std::uint32_t> jobs;  // of the tasks: in a heterogeneous job, one for each component
  std::uint32_t tasks = 0;          // of the whole step
  // A step that was asked for is ended: `grace` seconds after its first failure, and at once when a node could not set
  // its tasks up. Any other is never ended.
  bool is_asked = false;
  bool is_refused = false;                     // by srun: no task of it is to start
  std::uint32_t grace = 0;                     // 0: --bootstrap-grace=off
  std::vector<ComponentText> components = {};  // which node has which tasks; empty: no node is expected to confirm them
};

// In init, before the variable is removed: `slurm-bootstrap supervise`, if it has started this srun, gets the first
// failure.
void find_supervisor();

// In local_user_init, for a step that is set up, or refused: opens the socket, starts the thread, and puts
// SLURM_BOOTSTRAP_FAILURE into srun's environment for the nodes. Without a socket or a thread the step runs without
// reports, and so does an unasked step if srun has few descriptors left.
void start_report_receiver(const ReportPolicy& policy);

// The last hook: reports the first failure if that is still to be done. Waits a few seconds at most for a slurmctld
// that does not answer.
int end_report_receiver();

}  // namespace bootstrap
