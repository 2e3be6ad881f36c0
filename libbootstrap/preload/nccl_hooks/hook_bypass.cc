// Whether this process used NCCL and none of our functions saw it.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/hook_bypass.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "comm/nccl/nccl_library.h"
#include "core/util/text.h"
#include "preload/active_copy.h"
#include "preload/nccl_hooks/hooked_step.h"

namespace bootstrap {
namespace {

std::atomic<bool> is_seen = false;

// NCCL names all its threads, "NCCL BootstrapR" and "NCCL Service 0" among them (prctl(2) leaves 15 characters).
bool is_nccl_thread(int tasks, const char* id) {
  const auto path = cat({id, "/comm"});
  const int file = ::openat(tasks, path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char name[16] = "";
  const auto size = ::read(file, name, sizeof name - 1);
  (void)::close(file);
  return size > 5 && std::strncmp(name, "NCCL ", 5) == 0;
}

bool has_nccl_threads() {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  if (tasks == nullptr) return false;
  while (const auto* const entry = ::readdir(tasks.get())) {
    if (entry->d_name[0] != '.' && is_nccl_thread(::dirfd(tasks.get()), entry->d_name)) return true;
  }
  return false;
}

}  // namespace

// Written once: this is called often, and by many threads.
void note_hook_called() noexcept {
  if (!is_seen.load(std::memory_order_relaxed)) is_seen.store(true, std::memory_order_relaxed);
}

void warn_if_bypassed() noexcept {
  // The commands of a job script have one thread: they must not pay for this.
  if (__libc_single_threaded != 0 || is_seen || nccl::has_loaded() || !is_active_copy()) return;
  const int before = errno;
  try {
    const auto* const step = has_nccl_threads() ? this_step() : nullptr;
    if (step != nullptr && step->rank == 0) {
      step->warn(cat({"the program called ", nccl::product(),
                      " in a way that a preloaded library cannot intercept (RTLD_DEEPBIND, dlsym, or ", nccl::product(),
                      " linked statically and hidden): its communicators were not checked for hangs and wrong GPUs"}));
    }
  } catch (const std::exception&) {
    // Without memory there is no message.
  }
  errno = before;
}

}  // namespace bootstrap
