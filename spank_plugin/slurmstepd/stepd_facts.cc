// What slurmstepd knows about the step and its tasks on this node.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/stepd_facts.h"

#include <algorithm>
#include <cstdlib>

#include "core/util/text.h"
#include "probe/node_topology.h"
#include "probe/own_process.h"

namespace bootstrap {
namespace {

Result<std::uint32_t> require_item(spank_t spank, spank_item_t which, std::string_view name) {
  const auto value = item(spank, which);
  if (!value) return fail(ErrorCode::kUnavailable, cat({"Slurm did not provide ", name}));
  return *value;
}

}  // namespace

// slurmstepd puts the NodeName into its own environment; the host name may differ from it.
std::string own_host() {
  const char* const name = std::getenv("SLURMD_NODENAME");
  return name == nullptr ? "" : name;
}

// The job id of the step's name: that of the first component, which is SLURM_JOB_ID in all of them.
Result<StepId> gather_step_id(spank_t spank, const Environment& environment) {
  const auto job = require_item(spank, S_JOB_ID, "the job id");
  if (!job) return fail(job.error());
  const auto step = require_item(spank, S_JOB_STEPID, "the step id");
  if (!step) return fail(step.error());
  const auto named = parse_unsigned(environment.get("SLURM_JOB_ID").value_or(""), UINT32_MAX);
  // The item is that of the batch step; in srun's steps it is 0, and the variable comes along from the batch script.
  const auto item_restart = item(spank, S_SLURM_RESTART_COUNT).value_or(0);
  const auto restart = parse_unsigned(environment.get("SLURM_RESTART_COUNT").value_or(""), UINT32_MAX).value_or(0);
  StepId id{.job = *job, .step = *step, .restart = std::max(item_restart, static_cast<std::uint32_t>(restart))};
  if (named && *named < id.job) id.job = static_cast<std::uint32_t>(*named);
  return id;
}

Result<StepFacts> gather_facts(spank_t spank, const Environment& environment) {
  const auto id = gather_step_id(spank, environment);
  if (!id) return fail(id.error());
  const auto count = require_item(spank, S_JOB_LOCAL_TASK_COUNT, cat({"the number of tasks on ", own_host()}));
  if (!count) return fail(count.error());

  LocalTasks local;
  local.component_job = item(spank, S_JOB_ID);
  local.component_size = item(spank, S_JOB_TOTAL_TASK_COUNT);
  local.host = own_host();
  for (std::uint32_t task = 0; task < *count; ++task) {
    const auto rank = global_task_id(spank, task);
    if (!rank)
      return fail(ErrorCode::kUnavailable, cat({"Slurm did not provide the ranks of the tasks on ", own_host()}));
    local.ranks.push_back(*rank);
  }
  auto facts = read_facts(environment, *id, local);
  if (!facts) return facts;
  facts->gpu_bind_cure = gpu_bind_default_of(spank).option;
  facts->cores_of_node = cores_of_step(spank).value_or(0);
  return facts;
}

void gather_topology(StepFacts& facts, const Settings& settings) {
  auto found = read_node_topology(settings.topology.value, own_host());
  facts.topology = std::move(found.topology);
  facts.topology_from = std::move(found.from);
  const auto& gpus = facts.topology.gpus;
  const auto knows_files = [](const Gpu& gpu) { return !gpu.device.empty(); };
  if (!std::any_of(gpus.begin(), gpus.end(), knows_files)) facts.device_files = nvidia_device_files();
}

GpuBindDefault gpu_bind_default_of(spank_t spank) {
  const auto number = [&](spank_item_t which) {
    return static_cast<std::uint32_t>(parse_unsigned(text_item(spank, which), UINT32_MAX).value_or(0));
  };
  return gpu_bind_default(number(S_SLURM_VERSION_MAJOR), number(S_SLURM_VERSION_MINOR), number(S_SLURM_VERSION_MICRO));
}

}  // namespace bootstrap
