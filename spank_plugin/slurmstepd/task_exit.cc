// task_post_fork, task_exit and exit, in slurmstepd: the tasks are forked, have ended, and the step is over.
// SPDX-License-Identifier: Apache-2.0
#include "hook_guard.h"
#include "slurmstepd/step_on_node.h"

namespace bootstrap {

int StepOnNode::task_post_fork(spank_t spank) {
  const auto task = local_task_id(spank);
  const auto process = task_process(spank);
  if (process) failure_sender_.note_task(*process);
  if (!plan_ || !plan_->gpus || !task || !process || *task >= facts_->local_ranks.size()) return kAccepted;
  gpu_order_.note_task(*plan_->gpus, facts_->layout.place(facts_->local_ranks[*task]).local_rank, *process);
  return kAccepted;
}

int StepOnNode::task_exit(spank_t spank) {
  const auto task = local_task_id(spank);
  const auto status = item(spank, S_TASK_EXIT_STATUS);
  if (!task || !status) return kAccepted;
  if (error_ && *status != 0) failure_sender_.send({.local_rank = *task, .host = "-", .is_refused = true});
  if (!plan_ || *task >= facts_->local_ranks.size()) return kAccepted;
  const auto& place = facts_->layout.place(facts_->local_ranks[*task]);
  if (facts_->layout.size() == 1) return kAccepted;  // srun's own line says as much
  failure_sender_.send({.rank = place.rank,
                        .local_rank = place.local_rank,
                        .host = facts_->layout.host_of(place.rank),
                        .wait_status = static_cast<std::int32_t>(*status)});
  return kAccepted;
}

int StepOnNode::end() {
  ports_.release();
  return kAccepted;
}

}  // namespace bootstrap
