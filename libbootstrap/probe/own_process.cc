// What this process may use: its CPUs, the device files of GPUs, and libraries that it has loaded.
// SPDX-License-Identifier: Apache-2.0
#include "probe/own_process.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/util/text.h"
#include "probe/files.h"
#include "probe/read_gpus.h"

namespace bootstrap {

// cpu_set_t itself has 1024 CPUs, and the kernel refuses a set that is too small for the machine. A CpuSet has as many
// bits as Linux can have, in the order of the kernel's words.
static_assert(sizeof(CpuSet) == CPU_ALLOC_SIZE(CpuSet::kMaxCpus));
static_assert(std::endian::native == std::endian::little || sizeof(unsigned long) == sizeof(std::uint64_t));

CpuSet cores_of(pid_t process) {
  CpuSet cores;
  (void)::sched_getaffinity(process, sizeof cores, reinterpret_cast<cpu_set_t*>(&cores));
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
  if (::sched_setaffinity(0, sizeof cores, reinterpret_cast<const cpu_set_t*>(&cores)) == 0) return {};
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

std::vector<Gpu> OwnGpus::own_gpus() const {
  std::vector<Gpu> gpus;
  for (const auto index : own) gpus.push_back(index == kNotKnown ? Gpu() : of_node[index]);
  return gpus;
}

CpuSet OwnGpus::cores_near() const {
  CpuSet near;
  for (const auto& gpu : own_gpus()) near = near | gpu.near;
  return near;
}

OwnGpus find_own_gpus(const Environment& environment, const Place* place) {
  const auto list = read_visible_gpus(environment);
  auto all = read_gpus();
  const auto vendor = list ? list->kind->vendor : all.empty() ? GpuVendor::kNvidia : all.front().vendor;
  OwnGpus gpus{gpus_of(all, vendor), {}, {}};
  const auto& of_node = gpus.of_node;
  if (of_node.empty()) {
    for (auto& file : nvidia_device_files()) gpus.of_node.push_back({.device = std::move(file)});
  }
  std::vector<std::uint32_t> open;
  for (std::uint32_t i = 0; i < of_node.size(); ++i) {
    if (try_device(of_node[i].device) == GpuVisibility::Access::kOpen) open.push_back(i);
  }
  if (!list && !has_users_hip_list(environment)) gpus.usable = open;
  for (const auto& entry : list ? list->entries : std::vector<std::string>()) {
    const auto index = parse_unsigned(entry, kMaxGpus);
    const auto named = std::find_if(of_node.begin(), of_node.end(),
                                    [&](auto& gpu) { return !gpu.uuid.empty() && gpu_uuid(entry) == gpu.uuid; });
    auto& found = gpus.usable.emplace_back(OwnGpus::kNotKnown);
    if (index && *index < open.size()) found = open[*index];
    if (named != of_node.end()) found = static_cast<std::uint32_t>(named - of_node.begin());
  }
  const auto named_own = environment.get(environment.has(kGroupVariable) ? kGroupVariable : kGpuVariable);
  if (named_own || place == nullptr || gpus.usable.empty()) {
    for (const auto word : split(named_own.value_or(""), ',')) {
      const auto ordinal = parse_unsigned(word);
      if (ordinal && *ordinal < gpus.usable.size()) gpus.own.push_back(gpus.usable[*ordinal]);
    }
  } else {
    gpus.own = gpus.usable;
    const bool is_narrowed = environment.number("SLURM_GPUS_ON_NODE").value_or(0) > gpus.usable.size();
    if (place->local_size > 1 && !is_narrowed) gpus.own = {gpus.usable[place->local_rank % gpus.usable.size()]};
  }
  return gpus;
}

}  // namespace bootstrap
