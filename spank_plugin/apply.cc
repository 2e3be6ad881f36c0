// Applies a plan: for all tasks of a node at once before they are forked, and in the forked child, or ends that.
// SPDX-License-Identifier: Apache-2.0
#include "apply.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "core/gpu_list.h"
#include "core/text.h"

namespace bootstrap {
namespace {

constexpr int kTravelTimeOfASentence = 300;  // milliseconds; 10 to 50 are usual

// Written or read by Slurm itself between user_init and task_init: a value of ours would be mistaken for its own.
bool is_slurms(std::string_view name) {
  return (name.starts_with("SLURM_") && !name.starts_with("SLURM_BOOTSTRAP_")) ||
         std::find(kSlurmGpuVariables.begin(), kSlurmGpuVariables.end(), name) != kSlurmGpuVariables.end();
}

}  // namespace

// spank_setenv takes as long as the rest of task_init: it clears 256 KiB in each call. Most variables are the same for
// all tasks of a node, so that these calls are made once for all.
void CommonEnvironment::put(spank_t spank, const Plan& plan) {
  for (const auto& name : plan.removals) unset_task_variable(spank, name);
  has_removed_ = true;
  for (const auto& variable : plan.variables) {
    const bool is_common = variable.values.size() == 1 && variable.name != kExportsVariable;
    if (!is_common || variable.action == Action::kKept || is_slurms(variable.name)) continue;
    if (!set_task_variable(spank, variable.name, variable.value(0))) continue;
    variables_.emplace_back(variable.name, variable.value(0));
  }
}

bool CommonEnvironment::holds(std::string_view name, std::string_view value) const {
  return std::any_of(variables_.begin(), variables_.end(),
                     [&](const auto& entry) { return entry.first == name && entry.second == value; });
}

std::vector<std::string> CommonEnvironment::obsolete(const Plan& plan) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : variables_) {
    if (!plan.find(name)) names.push_back(name);
  }
  return names;
}

Status apply(spank_t spank, const Plan& plan, const CommonEnvironment& common, std::uint32_t local_task, Rank rank) {
  // The last word on who this task is has Slurm, just before the program starts.
  const auto named = task_variable(spank, "SLURM_PROCID");
  const auto expected = std::to_string(rank);
  if (!named || *named != expected) {
    return fail(ErrorCode::kDisagreement,
                cat({"task ", expected, " of the plan is SLURM_PROCID=", named.value_or("(not set)"),
                     "; please report this, and start the step with --bootstrap=off meanwhile"}));
  }
  for (const auto& name : common.obsolete(plan)) unset_task_variable(spank, name);
  if (!common.has_removed()) {
    for (const auto& name : plan.removals) unset_task_variable(spank, name);
  }
  for (const auto& variable : plan.variables) {
    const auto& value = variable.value(local_task);
    if (variable.action == Action::kKept || common.holds(variable.name, value)) continue;
    if (is_slurms(variable.name) && task_variable(spank, variable.name.c_str()) == value) continue;
    auto set = set_task_variable(spank, variable.name, value);
    if (!set) return set;
  }
  return {};
}

int end_task() noexcept {
  // srun ends the step on the first exit status that is not 0, and drops what the tasks wrote and it has not read by
  // then: the sentence of the one that speaks. So all of them wait for it to arrive. This is the child that was to
  // become the program; nothing else waits for it.
  (void)::poll(nullptr, 0, kTravelTimeOfASentence);
  // To return -1 would do this only for a plugin that plugstack.conf calls `required`; for an `optional` one Slurm
  // drops the -1 and starts the program. Slurm itself ends the child this way when a required plugin fails.
  ::_exit(1);
}

std::string explain_refused_port(const std::string& reason, const std::string& host, const Settings& settings) {
  const bool is_chosen = settings.port.value != 0;
  return cat({"MASTER_PORT on ", host, ": ", reason,
              is_chosen ? "; choose another one with --bootstrap-port, or leave the choice to us"
                        : "; start the step again, or choose a port with --bootstrap-port"});
}

}  // namespace bootstrap
