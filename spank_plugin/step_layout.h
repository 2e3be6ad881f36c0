// Slurm's own record of which task runs where, asked for by srun. The only code here that talks to slurmctld.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/layout_text.h"

namespace bootstrap {

struct StepTasks {
  std::uint32_t in_component = 0;  // of the component that srun's hook is called for: the first, or the only one
  std::uint32_t in_step = 0;       // of all components
};

// Whether the job of any component was given GPUs. An RPC for each component up to the first with GPUs. Only for srun,
// likewise.
bool has_gpus(const std::vector<ComponentText>& components);

// All components of the step in order of rank; empty when they do not add up. One RPC for a plain step, 0.7 to 1 ms.
// Only for srun: in slurmstepd Slurm's API can deadlock.
std::vector<ComponentText> ask_step_layout(const StepTasks& tasks, std::uint32_t job, std::uint32_t leader_job,
                                           std::uint32_t step);

}  // namespace bootstrap
