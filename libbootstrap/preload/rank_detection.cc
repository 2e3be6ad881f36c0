// Which rank a preloaded process is by its environment alone, in microseconds.
// SPDX-License-Identifier: Apache-2.0
#include "preload/preload.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>

#include "core/step/step_facts.h"
#include "core/step/step_id.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// Decimal digits only, up to 32 bits.
std::optional<std::uint32_t> number_of(const char* const* environment, std::string_view name) noexcept {
  const char* const text = find_value(environment, name);
  return text == nullptr ? std::nullopt : parse_unsigned<std::uint32_t>(text);
}

bool is(const char* value, const char* word) noexcept { return value != nullptr && std::strcmp(value, word) == 0; }

// True for the text of step_tag(). Without malloc and without snprintf, whose first call in a process is slow.
bool is_stamp(const char* text, const StepId& id) noexcept {
  char tag[64];
  const std::string_view prefix = id.launcher == Launcher::kMpirun ? kMpirunPrefix : "";
  auto* end = std::copy(prefix.begin(), prefix.end(), tag);
  for (const auto number : {id.job, id.step, id.restart}) {
    end = std::to_chars(end, std::end(tag), number).ptr;
    *end++ = '.';
  }
  return text != nullptr && text == std::string_view(tag, static_cast<std::size_t>(end - tag - 1));
}

// A restart count that is absent or no number is 0 here; the set-up reports one that is no number.
bool read_slurm_step(const char* const* environment, StepId& id) noexcept {
  const auto job = number_of(environment, "SLURM_JOB_ID=");
  const auto step = number_of(environment, "SLURM_STEP_ID=");
  if (!job || !step || !number_of(environment, "SLURM_PROCID=")) return false;
  id = {.job = *job, .step = *step, .restart = number_of(environment, "SLURM_RESTART_COUNT=").value_or(0)};
  return is_normal_step(id.step);
}

// Loading the library requests the set-up of steps of two or more tasks. A step of one task, and submitit, whose
// programs need no RANK, need SLURM_BOOTSTRAP=on. Returns why the step is not set up; null: it is.
const char* why_not_asked(const char* const* environment, bool is_mpirun) noexcept {
  const char* const mode = find_value(environment, "SLURM_BOOTSTRAP=");
  if (is(mode, "off")) return "SLURM_BOOTSTRAP=off switches it off";
  if (is(mode, "on")) return nullptr;
  if (find_value(environment, "SUBMITIT_EXECUTOR=") != nullptr) {
    return "submitit sets its own ranks; use SLURM_BOOTSTRAP=on to set it up";
  }
  const bool has_step_size = find_value(environment, "SLURM_STEP_NUM_TASKS=") != nullptr;
  const auto* const size = is_mpirun       ? "OMPI_COMM_WORLD_SIZE="
                           : has_step_size ? "SLURM_STEP_NUM_TASKS="
                                           : "SLURM_NTASKS=";
  if (number_of(environment, size).value_or(0) > 1) return nullptr;
  return "the step has one task; use SLURM_BOOTSTRAP=on to set it up";
}

Role role_of(const char* const* environment, DetectedRank& detected, bool is_task) noexcept {
  const bool is_mpirun = detected.step.launcher == Launcher::kMpirun;
  // A parent process has set the rank up, or has tried to and has printed why it could not.
  if (is_stamp(find_value(environment, "SLURM_BOOTSTRAP_STEP="), detected.step)) return Role::kInside;
  if (is_stamp(find_value(environment, "SLURM_BOOTSTRAP_GIVEN_UP="), detected.step)) return Role::kBeside;
  // TaskProlog and srun's --task-prolog run as children of the later task, with its environment and this variable.
  // Slurm 22.05 leaves the variable in the task's own environment, too.
  const bool has_context = find_value(environment, "SLURM_SCRIPT_CONTEXT=") != nullptr;
  if (!is_mpirun && has_context && detected.task > 0 && !is_task) {
    detected.why_not = "the process runs beside the task, as a prolog does";
    return Role::kBeside;
  }
  detected.why_not = why_not_asked(environment, is_mpirun);
  return detected.why_not == nullptr ? Role::kFirst : Role::kOutside;
}

}  // namespace

const char* find_value(const char* const* environment, std::string_view name) noexcept {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, name.data(), name.size()) == 0) return *environment + name.size();
  }
  return nullptr;
}

DetectedRank detect_rank(const char* const* environment, pid_t process) noexcept {
  const auto value = [environment](std::string_view name) { return find_value(environment, name); };
  DetectedRank detected;
  const char* const debug = value("SLURM_BOOTSTRAP_DEBUG=");
  detected.is_debug = debug != nullptr && *debug != '\0' && !is(debug, "0");
  if (is(value("SLURM_BOOTSTRAP_PRELOAD="), "off")) {
    detected.why_not = "SLURM_BOOTSTRAP_PRELOAD=off switches it off";
    return detected;
  }
  const bool is_stamped = value("SLURM_BOOTSTRAP_STEP=") != nullptr;
  detected.task = static_cast<pid_t>(number_of(environment, "SLURM_TASK_PID=").value_or(0));
  const bool is_task = detected.task > 0 && detected.task == process;
  // Ranks of mpirun also have the variables of the Slurm step that its daemon runs in. A task of Slurm itself can have
  // mpirun's only by inheritance from a rank of mpirun.
  const char* const name_space = is_task ? nullptr : value("PMIX_NAMESPACE=");
  if (name_space != nullptr && is_mpirun_name_space(name_space) && number_of(environment, "OMPI_COMM_WORLD_RANK=")) {
    detected.step = mpirun_id(name_space);
  } else if (!read_slurm_step(environment, detected.step)) {
    detected.has_leftovers = is_stamped && value("SLURM_JOB_ID=") != nullptr;
    detected.why_not = "its environment is not that of a task of a step";
    return detected;
  }
  detected.has_leftovers = is_stamped;
  detected.components = std::max(1U, number_of(environment, "SLURM_HET_SIZE=").value_or(1));
  detected.may_be_pty = value("SLURM_PTY_PORT=") != nullptr && !is(value("SLURM_BOOTSTRAP="), "on");
  detected.role = role_of(environment, detected, is_task);
  return detected;
}

}  // namespace bootstrap
