// What is known about the ranks that mpirun starts: who they are from OMPI_COMM_WORLD_*, where from its PMIx server.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/internal_variables.h"
#include "core/step/step_facts.h"
#include "core/step/step_id.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// From one process of a rank to those that it starts, so that the server is asked once: "12141.1/12141;a,b;2x2;block".
// In SLURM_BOOTSTRAP_MPIRUN_LAYOUT.

// A job of Open MPI or PRRTE. Slurm's own PMIx server has name spaces that start with "slurm.pmix.".
bool is_mpirun_name_space(std::string_view name_space) noexcept;

// "795672577" is [12141,1] in Open MPI's own words, 12141.1 in ours. Other names ("prterun-node001-17@1") are hashed.
StepId mpirun_id(std::string_view name_space) noexcept;

// Whether OMPI_COMM_WORLD_RANK and PMIX_NAMESPACE say that mpirun started the ranks. SLURM_PROCID may be there as well:
// that of the step in which mpirun started its daemon, or of the batch script.
bool is_mpirun_rank(const Environment& environment);

// The environment without what Slurm says of the step around mpirun, which differs from node to node.
Environment without_outer_step(const Environment& environment);

// Names under which the ranks of another launcher know themselves: leftovers in a step that srun started inside of one.
std::vector<std::string> stale_mpirun_names(const Environment& environment);

// Several nodes, and nobody has asked yet which rank is where.
bool needs_hosts(const Environment& environment);

Result<StepFacts> read_mpirun_facts(const Environment& environment, const MpirunContext& around);

// What kHandedOnVariable carries; empty where it is not needed, or too long for a variable.
std::string hand_on(const StepFacts& facts);

}  // namespace bootstrap
