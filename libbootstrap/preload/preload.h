// The preloaded library: finds out if this process is the first of a rank, and sets the variables of that rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "core/step/step_id.h"

namespace bootstrap {

enum class Role : std::uint8_t {
  kOutside,  // not in a step of ranks, or in a step that did not request the variables
  kBeside,   // in the step, and left alone: a prolog, or a rank whose parent process failed to set it up
  kInside,   // in a rank whose variables are set already, here or in a parent process
  kFirst,    // the first process of a rank, by its environment; a rank of mpirun may be inside a step of Slurm
};

// The rank that the environment describes. A step's variables also reach the batch script of a job that a rank
// submitted, and shells that outlive the step: belongs_to_step() finds those.
struct DetectedRank {
  Role role = Role::kOutside;
  StepId step;
  std::uint32_t components = 1;   // of a heterogeneous step: each has its own job id, counted from step.job
  pid_t task = 0;                 // the process that slurmstepd started; 0: unknown
  bool may_be_pty = false;        // srun --pty, of this step or of one around it
  bool is_debug = false;          // SLURM_BOOTSTRAP_DEBUG=1
  const char* why_not = nullptr;  // why the process is not set up, for people; null: it may be, or is already
  bool has_leftovers = false;     // variables of some step; to be removed if this process is not in that step
};

// The value of the first variable whose entry begins with `name`, such as "RANK="; null without one.
const char* find_value(const char* const* environment, std::string_view name) noexcept;

// Neither allocates nor calls the system: it runs before `main` in every process of a user who exports LD_PRELOAD, also
// before the C++ runtime or the program's malloc is ready. `process` is the caller's own id. Launchers are ranks here,
// too: the program is not examined.
DetectedRank detect_rank(const char* const* environment, pid_t process) noexcept;

// For a process that is the first of a rank by its environment. Opens files, 3 if slurmstepd started the process, and
// allocates nothing. False also for children of a launcher, which sets up its own ranks, and for --pty. `proc` is
// another folder in tests.
//
// The evidence, in this order: the nearest slurmstepd among the ancestors, whose title names its step, or for mpirun
// its nearest daemon; the cgroup, which Slurm names after the step, if no slurmstepd is visible (a PID namespace,
// another parent, /proc with hidepid). SLURM_TASK_PID proves nothing: slurmstepd sets it for batch scripts, too.
bool belongs_to_step(const DetectedRank& detected, pid_t process, const char* proc = "/proc") noexcept;

// For the first process of a rank, with its command line. Changes `environ` as the plugin would; rank 0 also holds
// MASTER_PORT until the process ends. After an error it prints one sentence, and the program starts without the
// variables. False: the process is a launcher, and nothing is set.
bool set_up_rank(Launcher launcher, int count, const char* const* words) noexcept;

// For a process outside the step that its variables come from: a batch script, salloc or a single task that a rank
// started. Removes the variables that were set for that rank and that are unchanged since.
void remove_outer_rank() noexcept;

// Writes the line and a newline to standard error at once. Ignores a closed standard error and a broken pipe, without a
// SIGPIPE to the program, and keeps errno.
void print_line(std::string_view line) noexcept;

}  // namespace bootstrap
