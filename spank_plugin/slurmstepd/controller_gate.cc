// What stands before a session, and needs none: steps that are not ours get none, and there may be no memory for one.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/step_plan.h"
#include "core/step/srun_decision.h"
#include "hook_guard.h"
#include "slurmstepd/apply.h"
#include "slurmstepd/controller.h"

namespace bootstrap {

bool StepController::is_prepared_ = false;
bool StepController::is_broken_ = false;
bool StepController::is_told_ = false;
bool StepController::has_asked_ = false;

int StepController::prepare(spank_t spank) {
  if (current_context() != Context::kSlurmstepd || is_prepared_) return kAccepted;  // listed twice in plugstack.conf
  const auto step = item(spank, S_JOB_STEPID);
  if (step && !is_normal_step(*step)) {
    is_broken_ = false;  // whatever broke is not needed here
    return kAccepted;
  }
  if (is_broken_) return kAccepted;
  auto& session = current();
  is_prepared_ = true;
  return session.prepare_step(spank, step);
}

int StepController::start_task(spank_t spank) {
  if (!is_broken_) return is_prepared_ ? current().start_prepared_task(spank) : kAccepted;
  // What broke may have happened before user_init knew whether this step asked, or after it took the decision away.
  const auto decision = task_variable(spank, std::string(kDecisionVariable).c_str()).value_or("");
  if (!has_asked_ && !asks_strongly(decision)) {
    if (is_prepared_) current().common_.withdraw(spank);
    for (const auto name : kMessages) unset_task_variable(spank, std::string(name));
    return kAccepted;
  }
  if (!is_told_ && local_task_id(spank).value_or(0) == 0) {
    slurm_error("bootstrap: a task cannot be set up, since the plugin failed before; the log of slurmd says why");
  }
  return abort_task();
}

int StepController::fail_all_tasks(bool is_told) noexcept {
  is_broken_ = true;
  is_told_ = is_told;
  return kAccepted;
}

}  // namespace bootstrap
