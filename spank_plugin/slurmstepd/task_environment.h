// The variables of a plan, put into the environment of a task, all in task_init: where a plugin before ours starts the
// program in its own task_init, a task has none of them. The child of a process with threads may do little: here it
// opens, locks and looks up nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/plan/plan.h"
#include "core/settings/settings.h"
#include "core/util/result.h"
#include "spank_api.h"

namespace bootstrap {

// In task_init: what the variables of kLeftToPlugins are by now.
std::vector<std::pair<std::string, std::string>> values_of_plugins(spank_t spank);

// In task_init: sets all variables of the task, in place of what another plugin has set since user_init (pyxis writes
// those of a container's image). What the plan keeps stays as it is by now. `rank`: must be what Slurm gave the task.
Status set_task_environment(spank_t spank, const TaskPlan& task, const std::vector<std::string>& removals, Rank rank);

// In task_init: takes back what was set, as far as Slurm does not write it itself. Allocates nothing.
void withdraw_task_environment(spank_t spank, const TaskPlan& task);

// The library's path on the nodes: preload_library= of the site, or where it was installed.
std::string preload_library(const Settings& settings);

// In user_init, where the files are the node's, whichever container a task is started in, and before or behind which
// plugin we stand: why the library cannot be preloaded. The tasks start without it then.
Status check_preload(const Settings& settings);

// In the forked child that becomes the task.
Status preload(spank_t spank, const Settings& settings);

}  // namespace bootstrap
