// What one slurmstepd keeps between its hooks: the plan of the step on this node, or the reason why there is none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/framework_rules.h"
#include "core/plan/step_plan.h"
#include "core/step/srun_decision.h"
#include "probe/port_claim.h"
#include "slurmstepd/apply.h"
#include "slurmstepd/failure_reporter.h"
#include "slurmstepd/gpu_order.h"
#include "spank_api.h"
#include "tools/horovod_server/listener.h"

namespace bootstrap {

class StepController {
 public:
  static StepController& current();

  // These three need no session.
  static int prepare(spank_t spank);  // user_init: facts, plan, port. Never fails; what went wrong waits for start_task
  static int start_task(spank_t spank);  // task_init, in the forked child: only applies
  // A hook before task_init failed: no task of this node starts, if the step is a normal one. is_told: in words that
  // reach the user, and not the log of slurmd alone.
  static int fail_all_tasks(bool is_told) noexcept;

  int note_task(spank_t spank);  // task_post_fork: with the last task all cores are known, and the order of the GPUs
  int note_exit(spank_t spank);  // task_exit: srun hears how it ended
  int end();                     // exit: gives the ports back

 private:
  int prepare_step(spank_t spank, std::optional<std::uint32_t> step);
  int start_prepared_task(spank_t spank);
  Status plan_step(spank_t spank, const Environment& environment, const Settings& settings);
  Status start_rank(spank_t spank, std::uint32_t task);
  Status hold_port(StepPlan& plan, const StepFacts& facts, const Settings& settings);
  Status open_rendezvous(StepPlan& plan, const StepFacts& facts, const Settings& settings);
  void start_rendezvous(const Place& place);
  Status hold_worker_ports(const StepPlan& plan, const StepFacts& facts);
  Result<TaskObservation> finalize_gpus(spank_t spank, std::uint32_t task, const Place& place);
  void finalize_frameworks(spank_t spank, std::uint32_t task, TaskObservation sight);
  void leave_alone(spank_t spank, const Environment& environment);
  bool is_strong() const;
  bool speaks_for_step(std::uint32_t task) const;

  static bool is_prepared_, is_broken_, is_told_;
  static bool has_asked_;  // strongly
  std::optional<std::uint32_t> started_task_;
  std::string step_;                   // "12.0", for messages
  Decision decision_;                  // srun's
  std::vector<std::string> warnings_;  // of a step that is left alone
  std::optional<Error> error_;
  bool error_is_local_ = false;     // only this node has it, so this node must tell
  std::optional<StepFacts> facts_;  // these three: of a step in which something is set
  Settings settings_;
  std::optional<StepPlan> plan_;
  Status preload_;  // why libbootstrap.so is not added to LD_PRELOAD, where it was asked for
  CommonEnvironment common_;
  GpuOrder gpu_order_;
  bool holds_first_node_ = false;  // rank 0 is here, or would be
  PortClaim claim_;
  std::vector<PortClaim> worker_claims_;
  Listener rendezvous_;        // where Horovod's ranks meet, until rank 0 has handed it to the server
  Descriptor server_program_;  // that server, as this node knows it: rank 0 may be in a container
  FailureReporter failure_reporter_;
};

}  // namespace bootstrap
