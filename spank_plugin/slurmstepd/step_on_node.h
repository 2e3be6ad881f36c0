// The step on this node, as slurmstepd's hooks see it: its plan, or the reason why there is none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/plan/plan.h"
#include "probe/port_reservation.h"
#include "slurmstepd/task_gpus.h"
#include "spank_api.h"

namespace bootstrap {

// What user_init did, once for the node; task_init acts on it in each task.
struct LeftAlone {
  std::string warning = {};
};
struct Refused {         // no task of this node starts
  std::string why = {};  // empty: srun has printed it
};
struct Planned {
  StepFacts facts;
  Settings settings;
  StepPlan plan;
  std::optional<PortFacts> ports;          // nothing: no port could be reserved
  std::vector<std::string> warnings = {};  // of this node, beside those of the plan
  Result<std::string> preload = "";        // what LD_PRELOAD gets, or why it does not; empty: nothing was asked for
  GpuOrder gpu_order = {};                 // decided in task_post_fork
};

class StepOnNode {
 public:
  static StepOnNode& current();

  // The hooks of slurmstepd, by their names. The first three need no object: steps that are not ours have none, and
  // there may be no memory for one.
  static int user_init(spank_t spank);  // facts, plan, ports. Never fails: what went wrong waits for task_init
  static int task_init(spank_t spank);  // in the forked child, which finds out its GPUs and cores alone
  // A hook before task_init failed, or an option is lost: no task of this node starts, if the step is a normal one.
  // user_knows: the message reached the user, and not the log of slurmd alone.
  static int fail_all_tasks(bool user_knows) noexcept;
  // task_init failed with an exception: the task ends where its step asked, and starts as without the plugin elsewhere.
  static int fail_task(spank_t spank) noexcept;
  int task_post_fork(spank_t spank);  // with the last task all cores are known, and so the order of the GPUs
  int task_exit(spank_t spank);       // srun receives how the task ended
  int end();                          // exit: gives the ports back

 private:
  using Outcome = std::variant<LeftAlone, Refused, Planned>;

  Outcome look_at_step(spank_t spank);
  Outcome refuse_large_environment(spank_t spank);
  Outcome leave_alone(spank_t spank, const Environment& environment, const std::optional<Decision>& decision);
  Outcome set_up(spank_t spank, const Environment& environment, const StepId& id, const Decision& decision);
  Result<Planned> plan_node(spank_t spank, const Environment& environment, const StepId& id, const Decision& decision,
                            const Settings& settings);
  void log_decision(spank_t spank, const Environment& environment, const Decision& decision,
                    const Outcome& outcome) const;

  int init_task(spank_t spank);
  Status set_up_task(spank_t spank, const Planned& planned, std::uint32_t task);
  void explain_task(spank_t spank, const Planned& planned, const TaskFacts& task) const;
  int give_up(spank_t spank, const std::string& why) const;
  void withdraw(spank_t spank) const;  // the task is to start as without the plugin; allocates nothing

  static inline bool is_prepared_ = false;
  static inline bool is_broken_ = false;
  static inline bool user_knows_ = false;
  static inline bool has_asked_ = false;  // strongly
  std::string step_;                      // "12.0", for messages
  Outcome outcome_;
  bool is_reporter_ = false;  // this node prints what is to be said once: rank 0 is here, or it is of this node alone
  std::optional<std::uint32_t> started_task_;
  std::optional<TaskPlan> task_plan_;  // in a task: its own
  StepPorts ports_;
};

// With LaunchParameters=slurmstepd_memlock_all slurmstepd locks all its memory, also what it gets later. As the user it
// may lock no more than RLIMIT_MEMLOCK: no heap grows any more then, and Slurm ends slurmstepd at its own next
// allocation. So what user_init takes is set aside before, as root.
void take_heap_reserve();  // in init; nothing where memory is not locked, or may be without limit

// At the beginning of user_init and at its end: what it may use up, and what Slurm has left then.
void release_heap_for_us() noexcept;
void release_heap_for_slurm() noexcept;

}  // namespace bootstrap
