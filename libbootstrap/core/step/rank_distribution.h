// Finds out which rank runs where, from srun's word or from the distribution, and holds it against the tasks at hand.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/step/rank_layout.h"
#include "core/step/step_id.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// Where the rank order came from, in falling order of trust.
enum class LayoutSource : std::uint8_t {
  kStepLayout,    // srun asked slurmctld: exact for every distribution
  kDistribution,  // dealt out here as SLURM_DISTRIBUTION says
  kMpirun,        // mpirun started the ranks: exact on one node
};

// The tasks of this node as the process that starts them, or is one of them, knows them.
struct LocalTasks {
  std::string host;                            // NodeName of this node; empty when not known
  std::vector<Rank> ranks;                     // in order of local task id
  std::optional<std::uint32_t> local_id;       // SLURM_LOCALID of the only rank in `ranks`, in a task itself
  std::optional<std::uint32_t> component_job;  // set: `ranks` count from 0 within the component with this job id
  std::optional<std::size_t> component_size;   // tasks of the component; of a plain step, all tasks
};

struct FoundLayout {
  Layout layout;
  LayoutSource source = LayoutSource::kDistribution;
  std::vector<Rank> local_ranks;  // within the step, whatever `LocalTasks::ranks` counted
  std::string master_ip;          // srun's answer to what MASTER_ADDR is; empty: not told
};

// Fails when the sources disagree: a task that is not where the layout puts it, a size that is not the sum of its
// parts. Its cost is bounded by the number of tasks and nodes that the step has, whatever the environment claims.
Result<FoundLayout> find_layout(const Environment& environment, const StepId& id, const LocalTasks& local);

}  // namespace bootstrap
