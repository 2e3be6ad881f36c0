// What LD_PRELOAD runs before `main`: one look at the environment, and the variables of a rank that has none.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "preload/active_copy.h"
#include "preload/rank_detection.h"
#include "preload/rank_setup.h"
#include "preload/stderr_message.h"
#include "preload/step_membership.h"

namespace {

// A program that is only linked with the library asked for its functions, not for variables before `main`.
bool is_preloaded(const char* const* environment) noexcept {
  constexpr char kVariable[] = "LD_PRELOAD=";
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, kVariable, sizeof kVariable - 1) == 0) {
      return std::strstr(*environment, "libbootstrap.so") != nullptr;
    }
  }
  return false;
}

// With SLURM_BOOTSTRAP_DEBUG=1 alone. Without memory from malloc, as all of the constructor.
void say_why_not(const char* why, const char* program) {
  char line[512];
  const int size = std::snprintf(line, sizeof line, "bootstrap: process %d (%.100s): NOT SET UP: %s",
                                 static_cast<int>(::getpid()), program, why);
  if (size > 0) bootstrap::say({line, std::min(static_cast<std::size_t>(size), sizeof line - 1)});
}

// Returns why the process is not set up; null: it is.
const char* set_up(const bootstrap::DetectedRank& detected, int count, char** words) {
  if (!bootstrap::belongs_to_step(detected, ::getpid()))
    return "the process does not belong to the step of its environment";
  if (bootstrap::set_up_rank(detected.step.launcher, count, words)) return nullptr;
  return "the program is a launcher, which starts its own ranks";
}

// What is to be done needs files or memory, and is for one of several copies of us in the process.
void begin(const bootstrap::DetectedRank& detected, bool is_first, int count, char** words) {
  if (!bootstrap::is_active_copy()) return;
  const auto* const why_not = is_first ? set_up(detected, count, words) : detected.why_not;
  if (detected.is_debug && why_not != nullptr) say_why_not(why_not, count > 0 ? words[0] : "");
  const bool is_outside = is_first ? why_not != nullptr : detected.role == bootstrap::Role::kOutside;
  if (is_outside && detected.has_leftovers) bootstrap::forget_outer_rank();
}

// glibc hands the arguments of `main` to constructors. Every dynamic program of a user who exports LD_PRELOAD comes
// through here, so nothing may be done but in the first process of a rank: no thread, no file, no memory. PMIx is not
// asked here. The third argument would be the environment as it was at the start: constructors before this one may
// have changed it since, those of another copy of us among them.
__attribute__((constructor)) void enter(int count, char** words) {
  using bootstrap::Role;
  if (!is_preloaded(environ)) return;
  const auto detected = bootstrap::detect_rank(environ, ::getpid());
  const bool is_first = detected.role == Role::kFirst || detected.role == Role::kFirstOfMpirun;
  const bool has_leftovers = detected.role == Role::kOutside && detected.has_leftovers;
  const bool is_told = detected.is_debug && detected.why_not != nullptr;
  if (is_first || has_leftovers || is_told) begin(detected, is_first, count, words);
}

}  // namespace
