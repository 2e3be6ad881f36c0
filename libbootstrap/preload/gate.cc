// What a process that has us preloaded is, told from its environment alone and in microseconds.
// SPDX-License-Identifier: Apache-2.0
#include "preload/gate.h"

#include <cstring>
#include <optional>

#include "core/mpi_facts.h"
#include "core/program.h"
#include "core/step_id.h"

namespace bootstrap {
namespace {

struct Name {
  const char* text;
  std::size_t size;
};

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
  kMpiRank,
  kNameSpace,
  kWantedCount
};

template <std::size_t N>
constexpr Name name(const char (&text)[N]) {
  return {text, N - 1};
}

constexpr Name kNames[kWantedCount] = {
    name("SLURM_PROCID="),
    name("SLURM_JOB_ID="),
    name("SLURM_STEP_ID="),
    name("SLURM_RESTART_COUNT="),
    name("SLURM_TASK_PID="),
    name("SLURM_SCRIPT_CONTEXT="),
    name("SLURM_BOOTSTRAP_STEP="),
    name("SLURM_BOOTSTRAP_GIVEN_UP="),
    name("SLURM_BOOTSTRAP_PRELOAD="),
    name("OMPI_COMM_WORLD_RANK="),
    name("PMIX_NAMESPACE="),
};

bool is_digit(char character) noexcept { return character >= '0' && character <= '9'; }

// Nothing but decimal digits, and no more than 32 bits of them.
bool parse(const char* text, std::uint32_t& value) noexcept {
  std::uint64_t number = 0;
  if (text == nullptr || *text == '\0') return false;
  for (; is_digit(*text); ++text) {
    number = number * 10 + static_cast<unsigned>(*text - '0');
    if (number > UINT32_MAX) return false;
  }
  value = static_cast<std::uint32_t>(number);
  return *text == '\0';
}

// "12.0.1" against its three numbers; the same as stamp() writes.
bool is_stamp(const char* text, const StepId& id) noexcept {
  const std::uint32_t numbers[] = {id.job, id.step, id.restart};
  if (text == nullptr) return false;
  if (id.launcher == Launcher::kMpirun) {
    if (std::strncmp(text, kMpirunPrefix.data(), kMpirunPrefix.size()) != 0) return false;
    text += kMpirunPrefix.size();
  }
  for (int i = 0; i < 3; ++i) {
    std::uint64_t number = 0;
    const char* const begin = text;
    for (; is_digit(*text) && text - begin < 10; ++text) number = number * 10 + static_cast<unsigned>(*text - '0');
    if (text == begin || number != numbers[i] || *text != (i < 2 ? '.' : '\0')) return false;
    ++text;
  }
  return true;
}

bool is_off(const char* value) noexcept { return value != nullptr && std::strcmp(value, "off") == 0; }

bool may_matter(const char* entry) noexcept {
  return std::strncmp(entry, "SLURM_", 6) == 0 || std::strncmp(entry, "OMPI_COMM", 9) == 0 ||
         std::strncmp(entry, "PMIX_N", 6) == 0;
}

// Absent or unreadable is 0 for a restart; what is unreadable will be told by who reads all of it.
bool read_slurm_step(const char* const* values, StepId& id) noexcept {
  std::uint32_t rank = 0;
  if (!parse(values[kRank], rank) || !parse(values[kJob], id.job) || !parse(values[kStep], id.step)) return false;
  if (!parse(values[kRestart], id.restart)) id.restart = 0;
  return is_normal_step(id.step);
}

// Nothing where no process before this one has set the rank up, or tried to.
std::optional<Role> role_after(const char* const* values, const StepId& id) noexcept {
  if (is_stamp(values[kStamp], id)) return Role::kInside;
  if (is_stamp(values[kGivenUp], id)) return Role::kOutside;  // a parent has said why
  return std::nullopt;
}

}  // namespace

Role role_of(const char* const* environment, pid_t process, const char* program) noexcept {
  const char* values[kWantedCount] = {};
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const char* const entry = *environment;
    if (!may_matter(entry)) continue;
    for (int wanted = 0; wanted < kWantedCount; ++wanted) {
      if (values[wanted] != nullptr || std::strncmp(entry, kNames[wanted].text, kNames[wanted].size) != 0) continue;
      values[wanted] = entry + kNames[wanted].size;
      break;
    }
  }
  if (is_off(values[kPreload]) || (program != nullptr && is_launcher_name(program))) return Role::kOutside;
  StepId step;
  std::uint32_t rank = 0;
  std::uint32_t task = 0;
  const bool has_task = parse(values[kTask], task);
  const bool is_task = has_task && static_cast<pid_t>(task) == process;
  const bool is_slurms = read_slurm_step(values, step);
  // The variables of Slurm that mpirun's ranks see are those of the step in which it started its daemon; those of
  // mpirun that a task of Slurm's sees itself are what it inherited from a rank of mpirun.
  if (parse(values[kMpiRank], rank) && values[kNameSpace] != nullptr && is_mpirun_name_space(values[kNameSpace]) &&
      !(is_slurms && is_task)) {
    return role_after(values, mpirun_id(values[kNameSpace])).value_or(Role::kFirstOfMpirun);
  }
  if (!is_slurms) return Role::kOutside;
  if (const auto role = role_after(values, step)) return *role;
  // TaskProlog and srun's --task-prolog run in children of the task to be, with its environment and this word in it.
  // Slurm 22.05 leaves the word in the task's own environment too.
  if (values[kContext] != nullptr && has_task && !is_task) return Role::kOutside;
  return Role::kFirst;
}

}  // namespace bootstrap
