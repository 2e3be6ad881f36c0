// What glibc has in libc.so.6 itself since 2.34. Where the build is for an older one, this is part of the library,
// whose file still needs libc.so.6 alone: with 2.34 and newer no process has to map two more files.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/util/text.h"

extern "C" {

// Of libc.so.6 before 2.34, and null since: there libdl.so.2 is not needed to open a library.
[[gnu::weak]] void* __libc_dlopen_mode(const char* name, int mode);  // NOLINT(bugprone-reserved-identifier)

[[gnu::weak]] void bootstrap_entry();  // not in programs
void bootstrap_entry_of_old_glibc();

// Closes what /proc/self/fd has from this number on, without malloc: the processes that call it share their memory.
void closefrom(int first) {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;          // Linux 5.9
  const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY);  // not closed on the way: it has a number, too
  std::array<char, 2048> entries;
  long size = 0;
  bool has_closed = true;
  while (folder >= 0 && std::exchange(has_closed, false)) {
    (void)::lseek(folder, 0, SEEK_SET);  // what is closed while it is read may hide others
    while ((size = ::syscall(SYS_getdents64, folder, entries.data(), entries.size())) > 0) {
      for (const char* at = entries.data(); at < entries.data() + size;) {
        unsigned short length = 0;  // linux_dirent64: two numbers of 64 bits, this length, a type, the name
        std::memcpy(&length, at + 16, sizeof length);
        const auto number = bootstrap::parse_unsigned<int>(at + 19, 1 << 30);
        at += length;
        if (number && *number >= first && *number != folder) has_closed |= ::close(*number) == 0;
      }
    }
  }
  if (folder >= first) (void)::close(folder);
}
}

namespace bootstrap {
namespace {

// So that the names that are bound when they are first called are there.
__attribute__((constructor)) void open_parts_of_glibc() {
  if (__libc_dlopen_mode == nullptr) return;
  constexpr int kByProgram = static_cast<int>(0x80000000U);  // as dlopen(3) itself calls it
  for (const auto* const name : {"libpthread.so.0", "libdl.so.2"}) {
    (void)__libc_dlopen_mode(name, RTLD_NOW | RTLD_GLOBAL | kByProgram);
  }
}

}  // namespace
}  // namespace bootstrap

// The loader runs no constructors of what it starts as the program itself.
#if defined(__x86_64__)
[[gnu::force_align_arg_pointer]]
#endif
[[gnu::used]] void
bootstrap_entry_of_old_glibc() {
  bootstrap::open_parts_of_glibc();
  bootstrap_entry();
}
