// libamdhip64.so.6 for machines without a GPU of AMD: devices, their PCI addresses, and a current one in each thread.
// SPDX-License-Identifier: Apache-2.0
//
// HIP_DOUBLE_DEVICES is the number of GPUs of the machine (default: none). ROCR_VISIBLE_DEVICES selects some of them,
// in its order. HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES if that is empty, counts from 0 in this selection. Both
// lists end at the first invalid entry.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define HIP_DOUBLE_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kInvalidDevice = 101;

__attribute__((tls_model("initial-exec"))) thread_local int current = 0;

// The devices that `list` selects; all of them if it is not set.
std::vector<int> selected(const std::vector<int>& devices, const char* list) {
  if (list == nullptr) return devices;
  std::vector<int> left;
  std::string rest = list;
  while (!rest.empty()) {
    const auto word = rest.substr(0, rest.find(','));
    rest.erase(0, word.size() + 1);
    const auto index = static_cast<std::size_t>(std::atoi(word.c_str()));
    if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos || index >= devices.size()) break;
    left.push_back(devices[index]);
  }
  return left;
}

// Read at the first call, as HIP does.
const std::vector<int>& devices() {
  static const std::vector<int> all = [] {
    const char* const count = std::getenv("HIP_DOUBLE_DEVICES");
    std::vector<int> found;
    for (int index = 0; count != nullptr && index < std::atoi(count); ++index) found.push_back(index);
    const char* list = std::getenv("HIP_VISIBLE_DEVICES");
    if (list == nullptr || list[0] == '\0') list = std::getenv("CUDA_VISIBLE_DEVICES");
    if (list != nullptr && list[0] == '\0') list = nullptr;
    return selected(selected(found, std::getenv("ROCR_VISIBLE_DEVICES")), list);
  }();
  return all;
}

bool is_device(int device) { return device >= 0 && static_cast<std::size_t>(device) < devices().size(); }

}  // namespace

HIP_DOUBLE_API int hipDeviceGet(int* device, int ordinal) {
  if (!is_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

HIP_DOUBLE_API int hipSetDevice(int device) {
  if (!is_device(device)) return kInvalidDevice;
  current = device;
  return kSuccess;
}

HIP_DOUBLE_API int hipGetDevice(int* device) {
  if (devices().empty()) return kInvalidDevice;
  *device = current;
  return kSuccess;
}

HIP_DOUBLE_API int hipDeviceGetPCIBusId(char* text, int size, int device) {
  if (!is_device(device)) return kInvalidDevice;
  const int index = devices()[static_cast<std::size_t>(device)];
  const int length = std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", 0xc1 + index);
  return length < size ? kSuccess : kInvalidValue;
}

// HIP returns the names of its codes, up to 5.2 at least.
HIP_DOUBLE_API const char* hipGetErrorString(int code) {
  return code == kInvalidDevice  ? "hipErrorInvalidDevice"
         : code == kInvalidValue ? "hipErrorInvalidValue"
                                 : "hipErrorUnknown";
}
