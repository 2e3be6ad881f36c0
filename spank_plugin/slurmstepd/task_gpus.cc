// In the forked child that becomes the task: what it can see of the step's GPUs.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/task_gpus.h"

#include <algorithm>

#include "core/plan/gpu_variables.h"
#include "probe/own_process.h"

namespace bootstrap {

namespace {

// Slurm narrows all of its variables or none. A plugin that binds GPUs, such as mpibind, writes the one that programs
// read, and its user asked for that.
bool is_anothers(spank_t spank, const NodeGpus& gpus, const std::string& list) {
  constexpr std::string_view kOfSlurmAlone = "SLURM_STEP_GPUS";
  if (list.empty() || list == gpus.list.text()) return false;
  return std::any_of(gpus.slurms.begin(), gpus.slurms.end(), [&](const auto& variable) {
    if (variable.first != kOfSlurmAlone) return false;
    const auto now = task_variable(spank, "SLURM_STEP_GPUS");
    return !now || *now == variable.second;  // Slurm 22.05 unsets all where it is told not to bind
  });
}

}  // namespace

Result<GpuView> look_at_gpus(spank_t spank, StepPlan& plan, const Settings& settings, std::size_t local_task,
                             const Place& place) {
  const auto& gpus = *plan.gpus;
  GpuVisibility sight{try_devices(gpus.devices),
                      task_variable(spank, std::string(gpus.kind().variable).c_str()).value_or("")};
  sight.is_anothers_list = settings.gpu.source < Source::kEnvironment && is_anothers(spank, gpus, sight.list);
  auto view = view_of(gpus, place.local_rank, sight);
  if (!view.is_as_planned) {
    if (!view.warning.empty()) plan.warnings.push_back(view.warning);
    set_gpu_view(plan, local_task, place.rank, view);
    return view;
  }
  // Slurm 22.05 takes its variables from the task where it is told not to bind, and 23.11 narrows them: all or none.
  if (sight.list == gpus.list.text() && !gpus.has_users_list()) return view;
  for (const auto& [name, value] : gpus.slurms) {
    const std::string variable(name);
    if (task_variable(spank, variable.c_str()) == value) continue;
    auto set = set_task_variable(spank, variable, value);
    if (!set) return fail(set.error());
  }
  return view;
}

}  // namespace bootstrap
