// Applies a plan: for all tasks of a node at once before they are forked, and in the forked child, or ends that.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/apply.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/hardware/gpu_list.h"
#include "core/step/step_id.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr int kStderrDrainTime = 300;  // milliseconds; 10 to 50 are usual

// Written or read by Slurm itself between user_init and task_init: a value of ours would be mistaken for its own.
bool from_slurm(std::string_view name) {
  return (name.starts_with("SLURM_") && !name.starts_with("SLURM_BOOTSTRAP_")) ||
         std::find(kSlurmGpuVariables.begin(), kSlurmGpuVariables.end(), name) != kSlurmGpuVariables.end();
}

// What a task can do without, or have otherwise: a plugin that binds tasks to cores knows their threads better, and one
// that starts containers their interfaces, unless the user named those.
bool is_matter_of_taste(std::string_view name, const Settings& settings) {
  if (name == "OMP_NUM_THREADS" || name == "CUDA_DEVICE_ORDER") return true;
  constexpr std::array<std::string_view, 5> kInterfaces{"GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE",
                                                        "NCCL_SOCKET_IFNAME", "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME",
                                                        "UCX_NET_DEVICES"};
  return settings.interface.source < Source::kEnvironment &&
         std::find(kInterfaces.begin(), kInterfaces.end(), name) != kInterfaces.end();
}

// The environment of the task as it is now, for the names of a plan: all in one pass, since spank_getenv makes one for
// each. A value stays valid until its own variable is set.
class CurrentValues {
 public:
  CurrentValues(spank_t spank, const StepPlan& plan) : values_(plan.variables.size()) {
    const auto* entry = job_environment(spank);
    for (; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      const auto name = text.substr(0, text.find('='));
      if (name.size() == text.size()) continue;
      const auto value = text.substr(name.size() + 1);
      if (name == "SLURM_PROCID") rank_ = value;
      for (std::size_t i = 0; i < plan.variables.size(); ++i) {
        if (plan.variables[i].name == name) values_[i] = value;
      }
    }
  }

  std::optional<std::string_view> rank() const { return rank_; }
  std::optional<std::string_view> of(std::size_t variable) const { return values_[variable]; }

 private:
  std::vector<std::optional<std::string_view>> values_;
  std::optional<std::string_view> rank_;
};

}  // namespace

// spank_setenv takes as long as the rest of task_init: it clears 256 KiB in each call. Most variables are the same for
// all tasks of a node, so that these calls are made once for all. What plugins before us take for the user's word, if
// it is there, waits for task_init.
void CommonEnvironment::put(spank_t spank, const StepPlan& plan) {
  for (const auto& name : plan.removals) unset_task_variable(spank, name);
  has_removed_ = true;
  for (const auto& variable : plan.variables) {
    const bool is_common = variable.values.size() == 1 && variable.name != kExportsVariable;
    if (!is_common || variable.action == Action::kKept || from_slurm(variable.name)) continue;
    if (variable.name == "OMP_NUM_THREADS") continue;
    names_.push_back(variable.name);  // first: without memory for it, nothing is set that withdraw() does not know
    if (!set_task_variable(spank, variable.name, variable.value(0))) names_.pop_back();
  }
}

void CommonEnvironment::withdraw(spank_t spank) const {
  for (const auto& name : names_) unset_task_variable(spank, name);
}

std::vector<std::string> CommonEnvironment::obsolete(const StepPlan& plan) const {
  std::vector<std::string> names;
  for (const auto& name : names_) {
    if (!plan.find(name)) names.push_back(name);
  }
  return names;
}

Status apply(spank_t spank, StepPlan& plan, const CommonEnvironment& common, const Settings& settings,
             std::uint32_t local_task, Rank rank) {
  const CurrentValues now(spank, plan);
  // The last word on who this task is has Slurm, just before the program starts.
  const auto named = now.rank();
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
  for (std::size_t i = 0; i < plan.variables.size(); ++i) {
    auto& variable = plan.variables[i];
    const auto& value = variable.value(local_task);
    const auto current = now.of(i);
    if (variable.action == Action::kKept || current == value) continue;
    if (variable.action == Action::kSet && current && is_matter_of_taste(variable.name, settings)) {
      variable.previous = *current;
      variable.action = Action::kKept;
      variable.why = "set by another plugin";
      continue;
    }
    auto set = set_task_variable(spank, variable.name, value);
    if (!set) return set;
  }
  return {};
}

int abort_task() noexcept {
  // srun ends the step on the first exit status that is not 0, and drops what the tasks wrote and it has not read by
  // then: the sentence of the one that speaks. So all of them wait for it to arrive. This is the child that was to
  // become the program; nothing else waits for it.
  (void)::poll(nullptr, 0, kStderrDrainTime);
  // To return -1 would do this only for a plugin that plugstack.conf calls `required`; for an `optional` one Slurm
  // drops the -1 and starts the program. Slurm itself ends the child this way when a required plugin fails.
  ::_exit(1);
}

std::string explain_refused_port(const std::string& reason, const std::string& host, const Settings& settings) {
  constexpr std::string_view kOthers =
      "; start the step again, or choose other ports with --bootstrap-port or --bootstrap-port-range; where ports are "
      "taken often, Slurm can reserve them (MpiParams=ports= in slurm.conf); with --bootstrap-claim=off the step "
      "starts "
      "without a port that is held";
  const auto& port = settings.port;
  if (port.value == 0) return cat({"MASTER_PORT on ", host, ": ", reason, kOthers});
  return cat({"MASTER_PORT on ", host, ": ", reason, "; choose another one in ", setting_name("port", port.source),
              ", or leave the choice to us (--bootstrap-port=auto)"});
}

}  // namespace bootstrap
