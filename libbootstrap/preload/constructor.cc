// What the preloaded library does before `main`.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "preload/preload.h"

namespace bootstrap {
namespace {

// With SLURM_BOOTSTRAP_DEBUG=1. Like the whole constructor, it does not use malloc.
void print_why_not(const char* why, const char* program) {
  char line[512];
  const int size = std::snprintf(line, sizeof line, "bootstrap: process %d (%.100s): NOT SET UP: %s",
                                 static_cast<int>(::getpid()), program, why);
  if (size > 0) print_line({line, std::min(static_cast<std::size_t>(size), sizeof line - 1)});
}

// glibc passes the arguments of `main` to constructors. Every dynamic program of a user who exports LD_PRELOAD runs
// this, so a process that is not the first of a rank starts no thread, opens no file and allocates no memory. The
// environment comes from `environ`, not from the third argument: an earlier constructor may have changed it, such as
// that of a second copy of this library, which has set up this rank.
__attribute__((constructor)) void enter(int count, char** words) {
  const char* const list = find_value(environ, "LD_PRELOAD=");
  // A program that is only linked with the library does not want variables before `main`.
  if (list == nullptr || std::strstr(list, "libbootstrap.so") == nullptr) return;
  const auto detected = detect_rank(environ, ::getpid());
  const bool is_first = detected.role == Role::kFirst;
  const bool has_leftovers = detected.role == Role::kOutside && detected.has_leftovers;
  const bool is_printed = detected.is_debug && detected.why_not != nullptr;
  if (!is_first && !has_leftovers && !is_printed) return;
  const auto* why_not = detected.why_not;  // null: the process is set up
  if (is_first && !belongs_to_step(detected, ::getpid())) {
    why_not = "the process does not belong to the step of its environment";
  } else if (is_first) {
    const bool is_set_up = set_up_rank(detected.step.launcher, count, words);
    why_not = is_set_up ? nullptr : "the program is a launcher, which starts its own ranks";
  }
  if (detected.is_debug && why_not != nullptr) print_why_not(why_not, count > 0 ? words[0] : "");
  const bool is_outside = is_first ? why_not != nullptr : detected.role == Role::kOutside;
  if (is_outside && detected.has_leftovers) remove_outer_rank();
}

}  // namespace
}  // namespace bootstrap
