// Functions that glibc has in libc.so.6 itself since 2.34. A build for an older glibc has them in the library, and
// still needs libc.so.6 alone: with 2.34 and newer no process has to map two more files.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

extern "C" {

// In libc.so.6 before 2.34, and null since: opens a library without libdl.so.2.
[[gnu::weak]] void* __libc_dlopen_mode(const char* name, int mode);  // NOLINT

[[gnu::weak]] void bootstrap_entry();  // not in the plugin
void bootstrap_entry_of_old_glibc();

// Without malloc: the processes that call it share their memory.
void closefrom(int first) {
  constexpr rlim_t kMost = 1 << 20;
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;  // Linux 5.9
  rlimit limit{.rlim_cur = kMost, .rlim_max = kMost};
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  for (int number = first; number < static_cast<int>(std::min(limit.rlim_cur, kMost)); ++number) (void)::close(number);
}
}

namespace bootstrap {
namespace {

// Loads the libraries of the names that the loader binds at their first call.
__attribute__((constructor)) void open_parts_of_glibc() {
  if (__libc_dlopen_mode == nullptr) return;
  constexpr int kByProgram = static_cast<int>(0x80000000U);  // as dlopen(3) itself calls it
  for (const auto* const name : {"libpthread.so.0", "libdl.so.2"}) {
    (void)__libc_dlopen_mode(name, RTLD_NOW | RTLD_GLOBAL | kByProgram);
  }
}

}  // namespace
}  // namespace bootstrap

// The loader runs no constructors of a file that it starts as the program.
#if defined(__x86_64__)
[[gnu::force_align_arg_pointer]]
#endif
[[gnu::used]] void
bootstrap_entry_of_old_glibc() {
  bootstrap::open_parts_of_glibc();
  bootstrap_entry();
}
