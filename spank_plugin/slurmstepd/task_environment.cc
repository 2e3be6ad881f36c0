// The variables of a plan, put into the environment of tasks.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/task_environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "core/hardware/gpu_list.h"
#include "core/settings/variables.h"
#include "core/step/planned_variables.h"
#include "core/step/step_id.h"
#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {
namespace {

// Written or read by Slurm itself between user_init and task_init: a value of ours would be mistaken for its own.
bool from_slurm(std::string_view name) {
  return (name.starts_with("SLURM_") && !name.starts_with("SLURM_BOOTSTRAP_")) ||
         std::find(kSlurmGpuVariables.begin(), kSlurmGpuVariables.end(), name) != kSlurmGpuVariables.end();
}

// Variables that another plugin may override: a core-binding plugin chooses better thread counts, a container plugin
// better interfaces, unless the user named an interface.
bool may_be_overridden(std::string_view name, const Settings& settings) {
  if (name == "OMP_NUM_THREADS" || name == "CUDA_DEVICE_ORDER") return true;
  constexpr std::array<std::string_view, 4> kInterfaces{"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME",
                                                        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "UCX_NET_DEVICES"};
  return settings.interface.source < Source::kEnvironment &&
         std::find(kInterfaces.begin(), kInterfaces.end(), name) != kInterfaces.end();
}

// The environment of the task as it is now, for the names of a plan: all in one pass, since spank_getenv makes one for
// each. A value stays valid until its own variable is set. Names are compared with those of the plan alone: to look
// each of them up among the known variables took more than half of our own instructions in task_init.
class CurrentValues {
 public:
  CurrentValues(spank_t spank, const TaskPlan& plan, const std::vector<std::string>& removals)
      : values_(plan.variables.size()) {
    const auto* entry = job_environment(spank);
    for (; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      const auto name = text.substr(0, text.find('='));
      if (name.size() == text.size()) continue;
      const auto value = text.substr(name.size() + 1);
      if (name == "SLURM_PROCID") rank_ = value;
      bool is_planned = false;
      for (std::size_t i = 0; i < plan.variables.size(); ++i) {
        if (plan.variables[i].name != name) continue;
        values_[i] = value;
        is_planned = true;
      }
      for (const auto& removal : removals) {
        if (!is_planned && removal == name) to_remove_.push_back(&removal);
      }
    }
  }

  std::optional<std::string_view> rank() const { return rank_; }
  std::optional<std::string_view> of(std::size_t variable) const { return values_[variable]; }
  const std::vector<const std::string*>& to_remove() const { return to_remove_; }  // and not set anew

 private:
  std::vector<std::optional<std::string_view>> values_;
  std::optional<std::string_view> rank_;
  std::vector<const std::string*> to_remove_;
};

}  // namespace

void withdraw_task_environment(spank_t spank, const TaskPlan& task) {
  for (const auto& variable : task.variables) {
    if (variable.action == Action::kKept || from_slurm(variable.name)) continue;
    unset_task_variable(spank, variable.name);
    if (variable.is_users) (void)set_task_variable(spank, variable.name, variable.previous);
  }
}

Status set_task_environment(spank_t spank, TaskPlan& task, const std::vector<std::string>& removals,
                            const Settings& settings, Rank rank) {
  const CurrentValues now(spank, task, removals);
  // Slurm's own value wins: it identifies the task.
  const auto named = now.rank();
  const auto expected = std::to_string(rank);
  if (!named || *named != expected) {
    return fail(ErrorCode::kDisagreement,
                cat({"the plugin computed rank ", expected, " for a task, but its SLURM_PROCID is ",
                     named.value_or("not set"), "; start the step with --bootstrap=off, and report this as a bug"}));
  }
  // What user_init could not remove: a contained one may write into an environment of its own.
  for (const auto* const name : now.to_remove()) unset_task_variable(spank, *name);
  for (std::size_t i = 0; i < task.variables.size(); ++i) {
    auto& variable = task.variables[i];
    const auto& value = variable.value;
    const auto current = now.of(i);
    if (variable.action == Action::kKept || current == value) continue;
    if (variable.action == Action::kSet && current && may_be_overridden(variable.name, settings)) {
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

std::string preload_library(const Settings& settings) {
  return settings.preload_library.value.empty() ? BOOTSTRAP_LIBRARY : settings.preload_library.value;
}

namespace {

// musl ends a program with 127 whose LD_PRELOAD names a file that it finds and cannot use, and passes over one that it
// does not find. $LIB is the name of a folder to glibc's loader (ld.so(8)), and a folder that is not there to musl's.
// More ".." than there are folders end at the root.
std::string for_glibc_alone(const std::string& library) {
  constexpr std::string_view kRoot = "/$LIB/../../../../../../../..";
  if (library.front() != '/' || !may_access("/" BOOTSTRAP_GLIBC_LIB, X_OK)) return library;
  return cat({kRoot, library});
}

}  // namespace

Status check_preload(const Settings& settings) {
  const auto library = preload_library(settings);
  const auto cannot = [&](std::string_view why) {
    constexpr std::string_view kRemedy =
        "; install libbootstrap.so there, or set preload_library= in plugstack.conf; the tasks start without it";
    return fail(ErrorCode::kUnavailable, cat({setting_name("preload", settings.preload.source), ": cannot preload ",
                                              library, " on ", own_host(), ": ", why, kRemedy}));
  };
  // A file that is not there would make ld.so complain in every process of the task.
  if (library.find_first_of(" :") != std::string::npos)
    return cannot("LD_PRELOAD does not accept a path with a space or a colon");
  if (!may_access(library, R_OK)) return cannot(std::strerror(errno));
  // Whoever can change it would run code in the tasks of all users.
  if (const auto reason = distrust_of_writers(library); !reason.empty()) return cannot(reason);
  return {};
}

Status preload(spank_t spank, const Settings& settings) {
  const auto current = task_variable(spank, "LD_PRELOAD").value_or("");
  const auto list = append_preload(current, for_glibc_alone(preload_library(settings)));
  if (list == current) return {};
  return set_task_variable(spank, "LD_PRELOAD", list);
}

}  // namespace bootstrap
