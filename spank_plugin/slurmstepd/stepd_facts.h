// What slurmstepd knows about the step and its tasks on this node.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/plan/gpu_variables.h"
#include "core/step/step_facts.h"
#include "spank_api.h"

namespace bootstrap {

// In user_init: of the whole step, the same in all components of a heterogeneous one.
Result<StepId> gather_step_id(spank_t spank, const Environment& environment);

// In user_init. SPANK's items are preferred to the environment, which users can change; where both say something
// they must agree.
Result<StepFacts> gather_facts(spank_t spank, const Environment& environment);

// In user_init: adds where the GPUs of this node are.
void gather_topology(StepFacts& facts, const Settings& settings);

// The NodeName of this node, which its host name may differ from; empty: not known.
std::string own_host();

// What keeps the Slurm that runs from hiding GPUs.
GpuBindDefault gpu_bind_default_of(spank_t spank);

}  // namespace bootstrap
