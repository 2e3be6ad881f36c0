// What this process may use: its CPUs, the device files of GPUs, and libraries that it has loaded.
// SPDX-License-Identifier: Apache-2.0
#include "probe/own_process.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {
namespace {

constexpr std::size_t kSize = CPU_ALLOC_SIZE(CpuSet::kMaxCpus);

// cpu_set_t itself has 1024 CPUs, and the kernel refuses a set that is too small for the machine.
struct Mask {
  alignas(cpu_set_t) unsigned char bytes[kSize] = {};
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(bytes); }
};

}  // namespace

CpuSet cores_of(pid_t process) {
  Mask mask;
  CpuSet cores;
  if (::sched_getaffinity(process, kSize, mask.set()) != 0) return cores;
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);  // the kernel's word
  for (std::size_t first = 0; first < CpuSet::kMaxCpus; first += kBits) {
    unsigned long word = 0;
    std::memcpy(&word, mask.bytes + first / 8, sizeof word);
    // Most words are 0, and each task calls this just before its program starts.
    for (std::size_t bit = 0; word != 0; ++bit, word >>= 1U) {
      if ((word & 1U) != 0) cores.add(first + bit);
    }
  }
  return cores;
}

bool is_one_core(const CpuSet& cpus) {
  if (cpus.empty()) return false;
  const FileTree files("");
  const auto first = std::to_string(cpus.members().front());
  const auto threads = files.read_cpus(cat({"/sys/devices/system/cpu/cpu", first, "/topology/thread_siblings_list"}));
  return (cpus.count() == 1 || cpus.is_within(threads)) &&
         !files.read_cpus("/sys/devices/system/cpu/online").is_within(cpus);
}

Status bind_to(const CpuSet& cores) {
  Mask mask;
  for (const auto cpu : cores.members()) CPU_SET_S(cpu, kSize, mask.set());
  if (::sched_setaffinity(0, kSize, mask.set()) == 0) return {};
  return fail(ErrorCode::kUnavailable, cat({"cannot bind to cores ", cores.to_list(), ": ", std::strerror(errno)}));
}

GpuVisibility::Access try_device(const std::string& path) {
  if (may_access(path, R_OK | W_OK)) return GpuVisibility::Access::kOpen;
  return errno == EPERM || errno == EACCES ? GpuVisibility::Access::kDenied : GpuVisibility::Access::kUnknown;
}

std::vector<GpuVisibility::Access> try_devices(const std::vector<std::string>& paths) {
  std::vector<GpuVisibility::Access> found;
  found.reserve(paths.size());
  for (const auto& path : paths) found.push_back(try_device(path));
  return found;
}

std::vector<std::string> nvidia_device_files() {
  constexpr int kMaxFiles = 64;  // more than a node has; numbers may have gaps
  std::vector<std::string> files;
  for (int number = 0; number < kMaxFiles; ++number) {
    auto device = cat({"/dev/nvidia", std::to_string(number)});
    if (try_device(device) != GpuVisibility::Access::kUnknown) files.push_back(std::move(device));
  }
  return files;
}

std::vector<std::string> device_files_of(const std::vector<Gpu>& gpus) {
  std::vector<std::string> paths;
  for (const auto& gpu : gpus) {
    if (!gpu.device.empty()) paths.push_back(gpu.device);
  }
  return paths.empty() ? nvidia_device_files() : paths;
}

}  // namespace bootstrap
