// What a rank of mpirun has around it: the name of its node, and its GPUs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/step/step_facts.h"
#include "core/util/environment.h"

namespace bootstrap {

// Empty, and nothing is looked at, in a rank of Slurm's.
MpirunContext read_mpirun_context(const Environment& environment);

}  // namespace bootstrap
