// What is known about a step before anything is decided: gathered by the plugin or read from SLURM_* variables.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/step_facts.h"

#include "core/step/mpirun_facts.h"
#include "core/util/required_variable.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::optional<std::uint32_t> number(const Environment& environment, std::string_view name) {
  const auto value = parse_unsigned(environment.get(name).value_or(""), UINT32_MAX);
  if (!value) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

}  // namespace

bool has_gpus(const Environment& environment) { return environment.has("SLURM_STEP_GPUS"); }

Result<StepId> read_step_id(const Environment& environment) {
  const auto job = require_number(environment, "SLURM_JOB_ID");
  if (!job) return fail(job.error());
  const auto step = require_number(environment, "SLURM_STEP_ID");
  if (!step) return fail(step.error());
  StepId id{.job = *job, .step = *step};
  if (environment.has("SLURM_RESTART_COUNT")) {
    const auto restart = require_number(environment, "SLURM_RESTART_COUNT");
    if (!restart) return fail(restart.error());
    id.restart = *restart;
  }
  return id;
}

Result<StepFacts> read_facts(const Environment& environment, const StepId& id, const LocalTasks& local) {
  auto placement = find_layout(environment, id, local);
  if (!placement) return fail(placement.error());
  return StepFacts{.id = id,
                   .decision = StepFacts().decision,
                   .layout = std::move(placement->layout),
                   .layout_source = placement->source,
                   .local_ranks = std::move(placement->local_ranks),
                   .is_one_task = false,
                   .has_gpus = has_gpus(environment),
                   .gpu_list = {},
                   .environment = environment,
                   .topology = {},
                   .device_files = {},
                   .topology_from = {},
                   .master_ip = std::move(placement->master_ip),
                   .routes = {},
                   .rdma = {},
                   .gpu_bind_cure = StepFacts().gpu_bind_cure};
}

std::optional<GpuList> gpu_list_of(const StepFacts& facts) {
  return facts.id.launcher == Launcher::kMpirun ? facts.gpu_list : read_gpu_list(facts.environment);
}

Result<StepFacts> read_task_facts(const Environment& environment, const MpirunContext& around) {
  if (is_mpirun_rank(environment)) return read_mpirun_facts(environment, around);
  const auto id = read_step_id(environment);
  if (!id) return fail(id.error());
  if (!is_normal_step(id->step)) {
    return fail(ErrorCode::kMissing, cat({"this is the batch or interactive step of job ", std::to_string(id->job),
                                          ", whose processes are no ranks; start the program with srun"}));
  }
  const auto rank = require_number(environment, "SLURM_PROCID");
  if (!rank) return fail(rank.error());
  LocalTasks local;
  local.host = environment.get("SLURMD_NODENAME").value_or("");
  local.ranks = {*rank};
  local.local_id = number(environment, "SLURM_LOCALID");
  // SLURM_NPROCS is the old name that srun sets to the tasks of the component alone.
  local.component_size = number(environment, "SLURM_NPROCS");
  auto facts = read_facts(environment, *id, local);
  if (facts) facts->is_one_task = true;
  return facts;
}

}  // namespace bootstrap
