// Which of several copies of this library in one process acts: LD_PRELOAD can name two, or one beside a linked one.
// SPDX-License-Identifier: Apache-2.0
#include "preload/active_copy.h"

#include <dlfcn.h>

namespace bootstrap {
namespace {

const void* file_of(const void* address) noexcept {
  Dl_info info{};
  return ::dladdr(address, &info) == 0 ? nullptr : info.dli_fbase;
}

}  // namespace

bool is_active_copy() noexcept {
  // A name that every release has, and nobody else: the first in the order of the loader is the program's.
  const void* const found = ::dlsym(RTLD_DEFAULT, "bootstrap_open");
  return found == nullptr || file_of(found) == file_of(reinterpret_cast<const void*>(&is_active_copy));
}

}  // namespace bootstrap
