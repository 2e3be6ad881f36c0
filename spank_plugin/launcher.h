// What only srun can do: tell the nodes the rank order, and give srun's own options a default.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/settings.h"
#include "spank_api.h"

namespace bootstrap {

// The hook: the step exists, its tasks do not. Sets SLURM_BOOTSTRAP_LAYOUT in srun's environment, from where srun
// takes it to the tasks.
int hand_over_layout(spank_t spank);

// srun, sbatch and salloc read some of what we set for the frameworks in the task that they run in as options of
// theirs.
void unset_outer_defaults();

// Defaults for srun's own options, through the variables that it reads before its command line; a value of the user's
// is left alone. The second puts the environment back as it was.
void set_launch_defaults(spank_t spank, const Settings& site);
void end_of_options();

// The last hook of all: in srun it says which task failed first, in slurmstepd it gives back what was held.
int end_of_step();

}  // namespace bootstrap
