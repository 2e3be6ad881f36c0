// What a process that has us preloaded is, told from its environment alone and in microseconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace bootstrap {

enum class Role : std::uint8_t {
  kOutside,        // no process of a step of ranks, or one that Slurm starts beside them: a prolog
  kInside,         // of a rank whose variables are set already, here or in a process before it
  kFirst,          // of a rank of Slurm's that nobody has set up
  kFirstOfMpirun,  // the same of a rank that mpirun started, perhaps within a step of Slurm's
};

// Neither allocates nor calls the system: it runs before `main` in every process of a user who exports LD_PRELOAD, in
// some before the C++ runtime or malloc of the program are ready. `process` is the caller's own id, `program` the first
// word of its command line: the daemons by which mpirun starts its ranks are Slurm's ranks by their environment, and
// shall start as they are.
Role role_of(const char* const* environment, pid_t process, const char* program = nullptr) noexcept;

}  // namespace bootstrap
