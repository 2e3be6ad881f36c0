// What a process that has us preloaded claims to be, told from its environment alone and in microseconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "core/step/step_id.h"

namespace bootstrap {

enum class Role : std::uint8_t {
  kOutside,        // no process of a step of ranks, or one that nobody asked for
  kBeside,         // of the step, and to be left as it is: a prolog, or a rank that a process before it gave up
  kInside,         // of a rank whose variables are set already, here or in a process before it
  kFirst,          // by its environment of a rank of Slurm's that nobody has set up
  kFirstOfMpirun,  // the same of a rank that mpirun started, perhaps within a step of Slurm's
};

// What the environment says. Variables of a step stay behind in the batch script of a job that one of its ranks
// submitted, and in shells that outlive it: step_membership.h has what a first process is held against.
struct DetectedRank {
  Role role = Role::kOutside;
  StepId step;
  std::uint32_t components = 1;   // of a heterogeneous step: each has a job id of its own, counted from step.job
  pid_t task = 0;                 // the process that slurmstepd started; 0: not told
  bool may_be_pty = false;        // srun --pty, of this step or of one around it
  bool is_debug = false;          // SLURM_BOOTSTRAP_DEBUG=1
  const char* why_not = nullptr;  // why the process is not set up, for people; null: it may be, or is already
  bool has_leftovers = false;     // of whatever step: where this is not it, they are to go
};

// Neither allocates nor calls the system: it runs before `main` in every process of a user who exports LD_PRELOAD, in
// some before the C++ runtime or malloc of the program are ready. `process` is the caller's own id. What the process
// runs is not looked at here: launchers are Slurm's ranks by their environment, too.
DetectedRank detect_rank(const char* const* environment, pid_t process) noexcept;

}  // namespace bootstrap
