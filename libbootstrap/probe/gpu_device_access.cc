// Whether this process may open a GPU's device node: the question that a device cgroup answers.
// SPDX-License-Identifier: Apache-2.0
#include "probe/gpu_device_access.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/util/text.h"
#include "probe/file_permissions.h"

namespace bootstrap {

GpuVisibility::Access try_device(const std::string& path) {
  if (may_access(path, R_OK | W_OK)) return GpuVisibility::Access::kOpen;
  return errno == EPERM || errno == EACCES ? GpuVisibility::Access::kDenied : GpuVisibility::Access::kUnknown;
}

std::vector<std::string> nvidia_device_files() {
  constexpr int kMaxFiles = 64;  // above what a node holds; numbers may have gaps
  std::vector<std::string> files;
  for (int number = 0; number < kMaxFiles; ++number) {
    auto path = cat({"/dev/nvidia", std::to_string(number)});
    if (try_device(path) != GpuVisibility::Access::kUnknown) files.push_back(std::move(path));
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

std::vector<GpuVisibility::Access> try_devices(const std::vector<std::string>& paths) {
  std::vector<GpuVisibility::Access> found;
  found.reserve(paths.size());
  for (const auto& path : paths) found.push_back(try_device(path));
  return found;
}

}  // namespace bootstrap
