// Which rank a preloaded process is by its environment alone, in microseconds.
// SPDX-License-Identifier: Apache-2.0
#include "preload/preload.h"

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "core/step/step_facts.h"
#include "core/step/step_id.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// The variables that are read, and their names in the same order.
enum Wanted : std::uint8_t {
  kRank,
  kJob,
  kStep,
  kRestart,
  kTask,
  kContext,
  kStamp,
  kGivenUp,
  kPreload,
  kMode,
  kSubmitit,
  kPty,
  kStepTasks,
  kTasks,
  kComponents,
  kMpiRank,
  kMpiSize,
  kNameSpace,
  kDebug,
  kWantedCount
};

constexpr std::string_view kNames[kWantedCount] = {"SLURM_PROCID=",
                                                   "SLURM_JOB_ID=",
                                                   "SLURM_STEP_ID=",
                                                   "SLURM_RESTART_COUNT=",
                                                   "SLURM_TASK_PID=",
                                                   "SLURM_SCRIPT_CONTEXT=",
                                                   "SLURM_BOOTSTRAP_STEP=",
                                                   "SLURM_BOOTSTRAP_GIVEN_UP=",
                                                   "SLURM_BOOTSTRAP_PRELOAD=",
                                                   "SLURM_BOOTSTRAP=",
                                                   "SUBMITIT_EXECUTOR=",
                                                   "SLURM_PTY_PORT=",
                                                   "SLURM_STEP_NUM_TASKS=",
                                                   "SLURM_NTASKS=",
                                                   "SLURM_HET_SIZE=",
                                                   "OMPI_COMM_WORLD_RANK=",
                                                   "OMPI_COMM_WORLD_SIZE=",
                                                   "PMIX_NAMESPACE=",
                                                   "SLURM_BOOTSTRAP_DEBUG="};

// Decimal digits only, up to 32 bits.
bool parse(const char* text, std::uint32_t& value) noexcept {
  const auto number = text == nullptr ? std::nullopt : parse_unsigned(text, UINT32_MAX);
  if (number) value = static_cast<std::uint32_t>(*number);
  return number.has_value();
}

// Compares with the text of step_tag(), without malloc and without snprintf, whose first call in a process is slow.
bool is_stamp(const char* text, const StepId& id) noexcept {
  if (text == nullptr) return false;
  std::string_view left = text;
  const auto take = [&left](std::string_view part) {
    const bool is_next = left.starts_with(part);
    if (is_next) left.remove_prefix(part.size());
    return is_next;
  };
  const auto take_number = [&take](std::uint32_t number) {
    char digits[10];
    const auto* const end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return take({digits, static_cast<std::size_t>(end - digits)});
  };
  return take(id.launcher == Launcher::kMpirun ? kMpirunPrefix : "") && take_number(id.job) && take(".") &&
         take_number(id.step) && take(".") && take_number(id.restart) && left.empty();
}

bool is(const char* value, const char* word) noexcept { return value != nullptr && std::strcmp(value, word) == 0; }

bool may_matter(const char* entry) noexcept {
  return std::strncmp(entry, "SLURM_", 6) == 0 || std::strncmp(entry, "OMPI_COMM", 9) == 0 ||
         std::strncmp(entry, "PMIX_N", 6) == 0 || std::strncmp(entry, "SUBMITIT_", 9) == 0;
}

using Values = const char* [kWantedCount];

void read_values(const char* const* environment, Values& values) noexcept {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const char* const entry = *environment;
    if (!may_matter(entry)) continue;
    for (int wanted = 0; wanted < kWantedCount; ++wanted) {
      if (values[wanted] != nullptr || std::strncmp(entry, kNames[wanted].data(), kNames[wanted].size()) != 0) continue;
      values[wanted] = entry + kNames[wanted].size();
      break;
    }
  }
}

// A restart count that is absent or no number is 0 here; the set-up reports the latter.
bool read_slurm_step(const char* const* values, StepId& id) noexcept {
  std::uint32_t rank = 0;
  if (!parse(values[kRank], rank) || !parse(values[kJob], id.job) || !parse(values[kStep], id.step)) return false;
  if (!parse(values[kRestart], id.restart)) id.restart = 0;
  return is_normal_step(id.step);
}

// Nothing if no parent process has set the rank up, or tried to.
std::optional<Role> role_after(const char* const* values, const StepId& id) noexcept {
  if (is_stamp(values[kStamp], id)) return Role::kInside;
  if (is_stamp(values[kGivenUp], id)) return Role::kBeside;  // the parent has printed why
  return std::nullopt;
}

Role stay_out(DetectedRank& detected, Role role, const char* why) noexcept {
  detected.why_not = why;
  return role;
}

// Loading the library asks for steps of two or more tasks. A step of one task, and submitit, whose programs need no
// RANK, need SLURM_BOOTSTRAP=on. Returns why the step is not set up; null: it is.
const char* why_not_asked(const Values& values, Wanted tasks) noexcept {
  std::uint32_t size = 0;
  if (is(values[kMode], "off")) return "SLURM_BOOTSTRAP=off switches it off";
  if (is(values[kMode], "on")) return nullptr;
  if (values[kSubmitit] != nullptr) return "submitit sets its own ranks; use SLURM_BOOTSTRAP=on to set it up";
  if (parse(values[tasks], size) && size > 1) return nullptr;
  return "the step has one task; use SLURM_BOOTSTRAP=on to set it up";
}

bool from_mpirun(const Values& values) noexcept {
  std::uint32_t rank = 0;
  return parse(values[kMpiRank], rank) && values[kNameSpace] != nullptr && is_mpirun_name_space(values[kNameSpace]);
}

Role role_of(const Values& values, DetectedRank& detected, bool is_task) noexcept {
  const bool is_mpirun = detected.step.launcher == Launcher::kMpirun;
  if (const auto role = role_after(values, detected.step)) return *role;
  // TaskProlog and srun's --task-prolog run as children of the later task, with its environment and this variable.
  // Slurm 22.05 leaves the variable in the task's own environment, too.
  if (!is_mpirun && values[kContext] != nullptr && detected.task > 0 && !is_task) {
    return stay_out(detected, Role::kBeside, "the process runs beside the task, as a prolog does");
  }
  const auto tasks = is_mpirun ? kMpiSize : values[kStepTasks] != nullptr ? kStepTasks : kTasks;
  if (const auto* const why = why_not_asked(values, tasks)) return stay_out(detected, Role::kOutside, why);
  return is_mpirun ? Role::kFirstOfMpirun : Role::kFirst;
}

}  // namespace

DetectedRank detect_rank(const char* const* environment, pid_t process) noexcept {
  Values values = {};
  read_values(environment, values);
  DetectedRank detected;
  detected.is_debug = values[kDebug] != nullptr && *values[kDebug] != '\0' && !is(values[kDebug], "0");
  if (is(values[kPreload], "off")) {
    detected.why_not = "SLURM_BOOTSTRAP_PRELOAD=off switches it off";
    return detected;
  }
  std::uint32_t task = 0;
  if (parse(values[kTask], task)) detected.task = static_cast<pid_t>(task);
  const bool is_task = detected.task > 0 && detected.task == process;
  // Ranks of mpirun also have the variables of the Slurm step that its daemon runs in. A task of Slurm itself can have
  // mpirun's only by inheritance from a rank of mpirun.
  if (!is_task && from_mpirun(values)) {
    detected.step = mpirun_id(values[kNameSpace]);
  } else if (!read_slurm_step(values, detected.step)) {
    detected.has_leftovers = values[kJob] != nullptr && values[kStamp] != nullptr;
    detected.why_not = "its environment is not that of a task of a step";
    return detected;
  }
  detected.has_leftovers = values[kStamp] != nullptr;
  if (!parse(values[kComponents], detected.components) || detected.components == 0) detected.components = 1;
  detected.may_be_pty = values[kPty] != nullptr && !is(values[kMode], "on");
  detected.role = role_of(values, detected, is_task);
  return detected;
}

}  // namespace bootstrap
