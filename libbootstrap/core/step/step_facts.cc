// What is known about a step before anything is decided: gathered by the plugin or read from SLURM_* variables.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/step_facts.h"

#include "core/step/mpirun_facts.h"
#include "core/util/text.h"

namespace bootstrap {
bool has_gpus(const Environment& environment) { return environment.has("SLURM_STEP_GPUS"); }

Result<StepId> read_step_id(const Environment& environment) {
  const auto job = environment.require_number("SLURM_JOB_ID");
  if (!job) return fail(job.error());
  const auto step = environment.require_number("SLURM_STEP_ID");
  if (!step) return fail(step.error());
  StepId id{.job = *job, .step = *step};
  if (environment.has("SLURM_RESTART_COUNT")) {
    const auto restart = environment.require_number("SLURM_RESTART_COUNT");
    if (!restart) return fail(restart.error());
    id.restart = *restart;
  }
  return id;
}

Result<StepFacts> read_facts(const Environment& environment, const StepId& id, const LocalTasks& local) {
  auto found = find_layout(environment, id, local);
  if (!found) return fail(found.error());
  StepFacts facts;
  facts.id = id;
  facts.layout = std::move(found->layout);
  facts.layout_source = found->source;
  facts.local_ranks = std::move(found->local_ranks);
  facts.has_gpus = has_gpus(environment);
  facts.environment = environment;
  facts.master_ip = std::move(found->master_ip);
  return facts;
}

std::optional<GpuList> gpu_list_of(const StepFacts& facts) {
  return facts.id.launcher == Launcher::kMpirun ? facts.gpu_list : read_gpu_list(facts.environment);
}

Result<StepFacts> read_task_facts(const Environment& environment, const MpirunContext& around) {
  if (is_mpirun_rank(environment)) return read_mpirun_facts(environment, around);
  const auto id = read_step_id(environment);
  if (!id) return fail(id.error());
  if (!is_normal_step(id->step)) {
    return fail(ErrorCode::kMissing,
                cat({"this process is in the batch or interactive step of job ", std::to_string(id->job),
                     ", which has no ranks; start the program with srun"}));
  }
  const auto rank = environment.require_number("SLURM_PROCID");
  if (!rank) return fail(rank.error());
  LocalTasks local;
  local.host = environment.get("SLURMD_NODENAME").value_or("");
  local.ranks = {*rank};
  local.local_id = environment.number("SLURM_LOCALID");
  // SLURM_NPROCS is the old name that srun sets to the tasks of the component alone.
  local.component_size = environment.number("SLURM_NPROCS");
  auto facts = read_facts(environment, *id, local);
  if (facts) facts->is_one_task = true;
  return facts;
}

}  // namespace bootstrap
