// What srun alone can do: decide whether its step is set up, and pass on to the nodes what they do not know.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spank_api.h"

namespace bootstrap {

// Before srun has read its options. In a step that asks: defaults for options of srun's own, through the variables that
// it reads before its command line; a value of the user's is left alone. end_of_options() puts the environment back.
void begin_launch(spank_t spank);
void end_of_options(spank_t spank);

// srun, sbatch and salloc take some of what we set in the task that they run in for options of theirs.
void unset_outer_variables();

// The step exists, its tasks do not. end_of_options() calls it for srun --async, whose step never exists in srun. What
// is to reach the nodes is set in srun's environment, from where srun takes it to the tasks. A step that is not set up
// gets none of it.
int decide_step(spank_t spank);

}  // namespace bootstrap
