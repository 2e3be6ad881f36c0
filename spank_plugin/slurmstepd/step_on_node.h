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
  std::optional<PortFacts> ports;          // nullopt: no port could be reserved
  std::vector<std::string> warnings = {};  // of this node, beside those of the plan
  Result<std::string> preload = "";        // the library for LD_PRELOAD, or why it cannot be; empty: not asked for
  GpuOrder gpu_order = {};                 // decided in task_post_fork
};

class StepOnNode {
 public:
  static StepOnNode& current();

  // The hooks of slurmstepd, by their names. The first three need no object: steps that are not ours have none, and
  // there may be no memory for one.
  static int user_init(spank_t spank);  // facts, plan, ports. Never fails: task_init acts on errors
  static int task_init(spank_t spank);  // in the forked child, which itself finds out its GPUs and cores
  // A hook before task_init failed, or an option is lost: no task of this node starts, if the step is a normal one.
  // user_knows: the message reached the user, and not only slurmd's log.
  static int fail_all_tasks(bool user_knows) noexcept;
  // task_init failed with an exception: the task ends if its step asked, else it starts as without the plugin.
  static int fail_task(spank_t spank) noexcept;
  int task_post_fork(spank_t spank);  // with the last task all cores are known, and so the order of the GPUs
  int task_exit(spank_t spank);       // srun receives how the task ended
  int end();                          // exit: releases the ports

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
  bool is_reporter_ = false;  // this node prints what is printed once: it has rank 0, or the text is about it alone
  std::optional<std::uint32_t> started_task_;
  std::optional<TaskPlan> task_plan_;  // in a task: its own
  StepPorts ports_;
};

// With LaunchParameters=slurmstepd_memlock_all slurmstepd locks all its memory, also what it gets later. As the user it
// may lock no more than RLIMIT_MEMLOCK: then no heap can grow, and Slurm ends slurmstepd at its own next allocation. So
// memory for user_init is set aside before, as root.
void take_heap_reserve();  // in init; does nothing if memory is not locked, or has no limit

// At the beginning of user_init, the memory that it may use; at its end, the memory for Slurm.
void release_heap_for_us() noexcept;
void release_heap_for_slurm() noexcept;

}  // namespace bootstrap
