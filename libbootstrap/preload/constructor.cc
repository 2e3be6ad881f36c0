// What LD_PRELOAD runs before `main` and after: one look at the environment, and the variables of a rank that has none.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstring>

#include "preload/gate.h"
#include "preload/rank_setup.h"
#include "preload/unseen.h"

namespace {

// A program that is only linked with the library asked for its functions, not for variables before `main`.
bool is_preloaded(char** environment) noexcept {
  constexpr char kVariable[] = "LD_PRELOAD=";
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, kVariable, sizeof kVariable - 1) == 0) {
      return std::strstr(*environment, "libbootstrap.so") != nullptr;
    }
  }
  return false;
}

bool is_rank = false;  // or a process that a rank has started

// glibc hands the arguments of `main` to constructors. Every dynamic program of a user who exports LD_PRELOAD comes
// through here, so nothing may be done but in the first process of a rank: no thread, no file, no memory. PMIx is asked
// for ranks of mpirun alone, in a process of its own.
__attribute__((constructor)) void enter(int count, char** arguments, char** environment) {
  const char* const program = count > 0 ? arguments[0] : nullptr;
  if (!is_preloaded(environment)) return;
  const auto role = bootstrap::role_of(environment, ::getpid(), program);
  is_rank = role != bootstrap::Role::kOutside;
  if (role == bootstrap::Role::kFirst) bootstrap::set_up_rank(bootstrap::Launcher::kSlurm);
  if (role == bootstrap::Role::kFirstOfMpirun) bootstrap::set_up_rank(bootstrap::Launcher::kMpirun);
}

__attribute__((destructor)) void leave() {
  if (is_rank) bootstrap::tell_unseen();
}

}  // namespace
