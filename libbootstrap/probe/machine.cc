// What this machine has that communication between ranks depends on, from files alone: no socket, no packet.
// SPDX-License-Identifier: Apache-2.0
#include "probe/machine.h"

#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {

Machine read_machine(const std::string& root) {
  Machine machine;
  utsname name{};
  if (::uname(&name) == 0) {
    machine.host = name.nodename;
    machine.kernel = cat({name.sysname, " ", name.release});
  }
  machine.libc = cat({"glibc ", ::gnu_get_libc_version()});
  const FileTree tree(root);
  machine.nvidia_module = tree.read("/sys/module/nvidia/version");
  struct statvfs memory {};
  if (::statvfs((root + "/dev/shm").c_str(), &memory) == 0) {
    machine.shm_free = static_cast<std::uint64_t>(memory.f_bavail) * memory.f_frsize;
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    machine.locked_memory = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
  }
  machine.rdma_devices = static_cast<std::uint32_t>(tree.names_in("/sys/class/infiniband").size());
  return machine;
}

}  // namespace bootstrap
