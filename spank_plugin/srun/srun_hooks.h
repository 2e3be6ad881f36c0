// What srun alone can do: decide whether its step is set up, and pass on to the nodes what they do not know.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spank_api.h"

namespace bootstrap {

// Before srun has read its options. In a step that asks: defaults for options of srun's own, through the variables that
// it reads before its command line; a value of the user's is left alone. end_of_options() puts the environment back.
void begin_launch(spank_t spank);
void end_of_options(spank_t spank);

// srun, sbatch and salloc take some variables that we set in the task around them for options of their own.
void unset_outer_variables();

// The step exists, its tasks do not. end_of_options() calls it for srun --async, whose step never exists in srun. Sets
// variables for the nodes in srun's environment, which srun passes on. For a step that is left alone it sets none, or
// only the decision and, for `near`, the user's --cpu-bind.
int decide_step(spank_t spank);

}  // namespace bootstrap
