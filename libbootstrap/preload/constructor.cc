// What LD_PRELOAD runs before `main` and after: one look at the environment, and the variables of a rank that has none.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "preload/gate.h"
#include "preload/rank_setup.h"
#include "preload/unseen.h"

namespace {

bool is_rank = false;  // or a process that a rank has started

// glibc hands the arguments of `main` to constructors. Every dynamic program of a user who exports LD_PRELOAD comes
// through here, so nothing may be done but in the first process of a rank: no thread, no file, no memory, no PMIx.
__attribute__((constructor)) void enter(int /*count*/, char** /*arguments*/, char** environment) {
  const auto role = bootstrap::role_of(environment, ::getpid());
  is_rank = role != bootstrap::Role::kOutside;
  if (role == bootstrap::Role::kFirst) bootstrap::set_up_rank();
}

__attribute__((destructor)) void leave() {
  if (is_rank) bootstrap::tell_unseen();
}

}  // namespace
