// What a process that has us preloaded is, told from its environment alone and in microseconds.
// SPDX-License-Identifier: Apache-2.0
#include "preload/gate.h"

#include <cstring>

#include "core/step_id.h"

namespace bootstrap {
namespace {

struct Name {
  const char* text;
  std::size_t size;
};

enum Wanted : std::uint8_t { kRank, kJob, kStep, kRestart, kTask, kContext, kStamp, kGivenUp, kPreload, kWantedCount };

template <std::size_t N>
constexpr Name name(const char (&text)[N]) {
  return {text, N - 1};
}

constexpr Name kNames[kWantedCount] = {
    name("SLURM_PROCID="),        name("SLURM_JOB_ID="),       name("SLURM_STEP_ID="),
    name("SLURM_RESTART_COUNT="), name("SLURM_TASK_PID="),     name("SLURM_SCRIPT_CONTEXT="),
    name("BOOTSTRAP_STEP="),      name("BOOTSTRAP_GIVEN_UP="), name("BOOTSTRAP_PRELOAD="),
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
bool is_stamp(const char* text, const std::uint32_t (&numbers)[3]) noexcept {
  if (text == nullptr) return false;
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

}  // namespace

Role role_of(const char* const* environment, pid_t process) noexcept {
  const char* values[kWantedCount] = {};
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const char* const entry = *environment;
    if (std::strncmp(entry, "SLURM_", 6) != 0 && std::strncmp(entry, "BOOTSTRAP_", 10) != 0) continue;
    for (int wanted = 0; wanted < kWantedCount; ++wanted) {
      if (values[wanted] != nullptr || std::strncmp(entry, kNames[wanted].text, kNames[wanted].size) != 0) continue;
      values[wanted] = entry + kNames[wanted].size;
      break;
    }
  }
  std::uint32_t rank = 0;
  std::uint32_t task = 0;
  std::uint32_t step[3] = {};
  if (!parse(values[kRank], rank) || !parse(values[kJob], step[0]) || !parse(values[kStep], step[1])) {
    return Role::kOutside;
  }
  if (!is_normal_step(step[1]) || is_off(values[kPreload])) return Role::kOutside;
  // Absent or unreadable is 0 here; what is unreadable will be told by who reads all of it.
  if (!parse(values[kRestart], step[2])) step[2] = 0;
  if (is_stamp(values[kStamp], step)) return Role::kInside;
  if (is_stamp(values[kGivenUp], step)) return Role::kOutside;  // a parent has said why
  // TaskProlog and srun's --task-prolog run in children of the task to be, with its environment and this word in it.
  // Slurm 22.05 leaves the word in the task's own environment too.
  if (values[kContext] != nullptr && parse(values[kTask], task) && static_cast<pid_t>(task) != process) {
    return Role::kOutside;
  }
  return Role::kFirst;
}

}  // namespace bootstrap
