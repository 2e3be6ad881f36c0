// What is known about a step before anything is decided: gathered by the plugin or read from SLURM_* variables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/environment.h"
#include "core/layout.h"
#include "core/result.h"

namespace bootstrap {

// Step ids from slurm.h (SLURM_MAX_NORMAL_STEP_ID and above are no normal steps). Fixed in Slurm's protocol, and
// written here so that the core needs no Slurm header; the plugin asserts that they are equal.
inline constexpr std::uint32_t kMaxNormalStepId = 0xfffffff0U;
inline constexpr std::uint32_t kInteractiveStepId = 0xfffffffaU;
inline constexpr std::uint32_t kBatchStepId = 0xfffffffbU;
inline constexpr std::uint32_t kExternStepId = 0xfffffffcU;

struct StepId {
  std::uint32_t job = 0;  // of a heterogeneous job: that of its first component, the same for all
  std::uint32_t step = 0;
  std::uint32_t restart = 0;  // SLURM_RESTART_COUNT: how often the job was requeued

  bool operator==(const StepId&) const = default;
};

std::string to_string(const StepId& id);  // "12.0", what users type
std::string stamp(const StepId& id);      // "12.0.0", BOOTSTRAP_STEP
inline bool is_normal_step(std::uint32_t step) { return step < kMaxNormalStepId; }

// Where the rank order came from, in falling order of trust.
enum class LayoutSource : std::uint8_t {
  kStepLayout,    // srun asked slurmctld: exact for every distribution
  kDistribution,  // dealt out here as SLURM_DISTRIBUTION says
};

// The tasks of this node as the process that starts them knows them.
struct LocalTasks {
  std::string host;                            // NodeName of this node; empty when not known
  std::vector<Rank> ranks;                     // in order of local task id
  std::optional<std::uint32_t> component_job;  // set: `ranks` count from 0 within the component with this job id
  std::optional<std::size_t> component_size;   // tasks of the component; of a plain step, all tasks
};

struct Facts {
  StepId id;
  Layout layout;
  LayoutSource layout_source = LayoutSource::kDistribution;
  std::vector<Rank> local_ranks;  // ranks that this process starts, or the one that it is, in order of local task id
  bool has_gpus = false;          // Slurm gave GPUs to this step
  Environment environment;        // as the job brought it along
};

// Whether Slurm gave GPUs to the step that this environment is of.
bool has_gpus(const Environment& environment);

// Identity from SLURM_JOB_ID, SLURM_STEP_ID and SLURM_RESTART_COUNT.
Result<StepId> read_step_id(const Environment& environment);

// Fails when the sources disagree: a task that is not where the layout puts it, a size that is not the sum of its
// parts.
Result<Facts> read_facts(const Environment& environment, const StepId& id, const LocalTasks& local);

// The facts as one task sees them in its own environment (SLURM_PROCID and the rest): the library and the command.
Result<Facts> read_task_facts(const Environment& environment);

}  // namespace bootstrap
