// The variables of a plan, put into the environment of tasks.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/task_environment.h"

#include <unistd.h>

#include <algorithm>
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

}  // namespace

void withdraw_task_environment(spank_t spank, const TaskPlan& task) {
  for (const auto& variable : task.variables) {
    if (variable.action == Action::kKept || from_slurm(variable.name)) continue;
    unset_task_variable(spank, variable.name);
    if (variable.is_users) (void)set_task_variable(spank, variable.name, variable.previous);
  }
}

std::vector<std::pair<std::string, std::string>> values_of_plugins(spank_t spank) {
  std::vector<std::pair<std::string, std::string>> values;
  for_each_variable(spank, [&](std::string_view name, std::string_view value) {
    const bool is_theirs = std::find(kLeftToPlugins.begin(), kLeftToPlugins.end(), name) != kLeftToPlugins.end();
    if (is_theirs) values.emplace_back(name, value);
  });
  return values;
}

Status set_task_environment(spank_t spank, const TaskPlan& task, const std::vector<std::string>& removals, Rank rank) {
  // The environment of the task as it is now, for the names of the plan: all in one pass, since spank_getenv makes one
  // for each. A value stays valid until its own variable is set. Names are compared with those of the plan alone: to
  // look each of them up among the known variables took more than half of our own instructions in task_init.
  std::vector<std::optional<std::string_view>> now(task.variables.size());
  std::vector<const std::string*> to_remove;  // and not set anew
  std::optional<std::string_view> named;
  for_each_variable(spank, [&](std::string_view name, std::string_view value) {
    if (name == "SLURM_PROCID") named = value;
    bool is_planned = false;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (task.variables[i].name != name) continue;
      now[i] = value;
      is_planned = true;
    }
    for (const auto& removal : removals) {
      if (!is_planned && removal == name) to_remove.push_back(&removal);
    }
  });
  const auto expected = std::to_string(rank);
  if (!named || *named != expected) {
    return fail(ErrorCode::kDisagreement,
                cat({"the plugin computed rank ", expected, " for a task, but its SLURM_PROCID is ",
                     named.value_or("not set"), "; start the step with --bootstrap=off, and report this as a bug"}));
  }
  // What user_init could not remove: a contained one may write into an environment of its own.
  for (const auto* const name : to_remove) unset_task_variable(spank, *name);
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto& variable = task.variables[i];
    if (variable.action == Action::kKept || now[i] == variable.value) continue;
    auto set = set_task_variable(spank, variable.name, variable.value);
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
    return fail(ErrorCode::kUnavailable, cat({setting_name(settings, "preload"), ": cannot preload ", library, " on ",
                                              own_host(), ": ", why, kRemedy}));
  };
  // A file that is not there would make ld.so complain in every process of the task.
  if (library.find_first_of(" :") != std::string::npos)
    return cannot("LD_PRELOAD does not accept a path with a space or a colon");
  if (!may_access(library, R_OK)) return cannot(std::strerror(errno));
  // A user who can change it would run code in the tasks of all users.
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
