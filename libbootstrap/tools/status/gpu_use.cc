// Which process uses which GPU of this node, by NVIDIA's NVML.
// SPDX-License-Identifier: Apache-2.0
#include "tools/status/gpu_use.h"

#include <dlfcn.h>

#include <array>

#include "core/util/text.h"

namespace bootstrap {
namespace {

// Declared as in NVIDIA's nvml.h; the library is opened where it is installed.
using NvmlDevice = void*;
struct NvmlProcess {  // nvmlProcessInfo_v2_t, of nvmlDeviceGetComputeRunningProcesses_v3
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};
struct NvmlUse {  // nvmlUtilization_t
  unsigned gpu;
  unsigned memory;
};
constexpr unsigned kMaxDevices = 64;
constexpr unsigned kMaxGpuProcesses = 256;
constexpr std::size_t kUuid = 96;

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace

std::vector<std::string> read_gpu_use() {
  std::vector<std::string> lines;
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) return lines;
  auto* const start = find<int()>(library, "nvmlInit_v2");
  auto* const count_devices = find<int(unsigned*)>(library, "nvmlDeviceGetCount_v2");
  auto* const find_device = find<int(unsigned, NvmlDevice*)>(library, "nvmlDeviceGetHandleByIndex_v2");
  auto* const read_use = find<int(NvmlDevice, NvmlUse*)>(library, "nvmlDeviceGetUtilizationRates");
  auto* const read_uuid = find<int(NvmlDevice, char*, unsigned)>(library, "nvmlDeviceGetUUID");
  auto* const list = find<int(NvmlDevice, unsigned*, NvmlProcess*)>(library, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (!start || !count_devices || !find_device || !read_use || !read_uuid || !list || start() != 0) return lines;
  unsigned devices = 0;
  if (count_devices(&devices) != 0) return lines;
  for (unsigned i = 0; i < devices && i < kMaxDevices; ++i) {
    NvmlDevice device = nullptr;
    NvmlUse use{};
    std::array<char, kUuid> uuid{};
    std::array<NvmlProcess, kMaxGpuProcesses> processes{};
    unsigned count = kMaxGpuProcesses;
    if (find_device(i, &device) != 0 || read_uuid(device, uuid.data(), kUuid) != 0 ||
        list(device, &count, processes.data()) != 0)
      continue;
    const bool has_use = read_use(device, &use) == 0;
    for (unsigned k = 0; k < count && k < kMaxGpuProcesses; ++k) {
      lines.push_back(cat({std::to_string(processes[k].pid), " ", std::to_string(i), " ",
                           has_use ? std::to_string(use.gpu) : "-", " ", uuid.data()}));
    }
  }
  return lines;
}

}  // namespace bootstrap
