// What this machine and this process have that decides whether communication between ranks works well.
// SPDX-License-Identifier: Apache-2.0
#include "probe/machine.h"

#include <dirent.h>
#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string first_line(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  char line[512] = "";
  if (file == nullptr || std::fgets(line, sizeof line, file.get()) == nullptr) return {};
  return std::string(split(line, '\n').front());
}

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (...)": the first word of
// numbers with dots between them.
std::string module_version(const std::string& line) {
  for (const auto word : split(line, ' ')) {
    const auto parts = split(word, '.');
    const bool is_version = parts.size() >= 2 && std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
                              return parse_unsigned(part).has_value();
                            });
    if (is_version) return std::string(word);
  }
  return {};
}

std::uint32_t count_entries(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  std::uint32_t count = 0;
  while (const auto* const entry = folder == nullptr ? nullptr : ::readdir(folder.get())) {
    if (entry->d_name[0] != '.') ++count;
  }
  return count;
}

}  // namespace

Machine read_machine(const std::string& root) {
  Machine machine;
  utsname name{};
  if (::uname(&name) == 0) {
    machine.host = name.nodename;
    machine.kernel = cat({name.sysname, " ", name.release});
  }
  machine.libc = cat({"glibc ", ::gnu_get_libc_version()});
  machine.nvidia_module = module_version(first_line(root + "/proc/driver/nvidia/version"));
  struct statvfs memory {};
  if (::statvfs((root + "/dev/shm").c_str(), &memory) == 0) {
    machine.shm_free = static_cast<std::uint64_t>(memory.f_bavail) * memory.f_frsize;
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    machine.locked_memory = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
  }
  machine.rdma_devices = count_entries(root + "/sys/class/infiniband");
  return machine;
}

}  // namespace bootstrap
