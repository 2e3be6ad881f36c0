// What is known about a rank that mpirun starts, from OMPI_COMM_WORLD_*.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/step/step_facts.h"
#include "core/step/step_id.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// A job of Open MPI or PRRTE. Slurm's own PMIx server has name spaces that start with "slurm.pmix.".
bool is_mpirun_name_space(std::string_view name_space) noexcept;

// "795672577" is [12141,1] in Open MPI's messages, 12141.1 in ours. Other names ("prterun-node001-17@1") are hashed.
StepId mpirun_id(std::string_view name_space) noexcept;

// True if OMPI_COMM_WORLD_RANK and PMIX_NAMESPACE show that mpirun started the ranks. SLURM_PROCID may be there as
// well: of the step in which mpirun started its daemon, or of the batch script.
bool is_mpirun_rank(const Environment& environment);

// The environment without Slurm's variables of the step around mpirun, which differ from node to node.
Environment without_outer_step(const Environment& environment);

// Variables of another launcher's ranks: leftovers in a step that srun started inside of one.
std::vector<std::string> stale_mpirun_names(const Environment& environment);

// On several nodes only the own place on the own node is true in the layout (StepFacts::knows_hosts is false).
Result<StepFacts> read_mpirun_facts(const Environment& environment, const MpirunContext& around);

}  // namespace bootstrap
