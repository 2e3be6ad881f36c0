// The variables of a plan, put into the environment of tasks: for all tasks of the node at once before they are forked,
// and in the forked child that becomes the task. Nothing is opened, locked or found out here: the child of a threaded
// process may do little.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/step_plan.h"
#include "spank_api.h"

namespace bootstrap {

// What slurmstepd has put into the environment of all its tasks.
class CommonEnvironment {
 public:
  // In user_init. What Slurm refuses now, and what it writes itself in each task, is left for set_task_environment().
  void put(spank_t spank, const StepPlan& plan);

  // In task_init: the task is to start without them.
  void withdraw(spank_t spank) const;

  bool has_removed() const { return has_removed_; }               // what the plan wants to be gone
  std::vector<std::string> obsolete(const StepPlan& plan) const;  // names that a task's own plan has no more

 private:
  std::vector<std::string> names_;
  bool has_removed_ = false;
};

// In task_init: what is the task's own, and what another plugin has changed since user_init (pyxis writes what the
// image of a container says). Who the task is and where the ranks meet must be the same for all, so that our value wins
// there; where it is a matter of taste, the other plugin's value stays, and is marked as kept in the task's plan.
Status set_task_environment(spank_t spank, StepPlan& plan, const CommonEnvironment& common, const Settings& settings,
                            std::uint32_t local_task, Rank rank);

// In task_init: takes back what the plan has set, as far as Slurm does not write it itself. Allocates nothing.
void withdraw_task_environment(spank_t spank, const StepPlan& plan);

}  // namespace bootstrap
