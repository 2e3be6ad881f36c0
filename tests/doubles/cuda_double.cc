// libcuda.so.1 for machines without a GPU: devices, their ids, and a current one in each thread.
// SPDX-License-Identifier: Apache-2.0
//
// CUDA_DOUBLE_DEVICES is the number of GPUs of the machine (default: none). CUDA_VISIBLE_DEVICES is read as CUDA does:
// numbers up to the first invalid entry, or the UUID of a MIG instance, which is of GPU 0 here.
// With CUDA_DOUBLE_STALL cuInit does not return. CUDA_DOUBLE_VERSION is the driver's version (13000).
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#define CUDA_DOUBLE_API extern "C" __attribute__((visibility("default"))) int

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kNotInitialized = 3;
constexpr int kNoDevice = 100;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidContext = 201;
constexpr int kNone = -1;
constexpr std::size_t kUuidSize = 16;

struct Device {
  int index = 0;    // in the machine
  std::string mig;  // "MIG-..." of an instance
};

std::atomic<bool> is_initialized{false};
// initial-exec needs no block of memory for each thread: ThreadSanitizer reports a race when such a block is reused.
__attribute__((tls_model("initial-exec"))) thread_local int current = kNone;  // device of the context

int number_in(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Read at the first call, as CUDA does.
const std::vector<Device>& devices() {
  static const std::vector<Device> all = [] {
    std::vector<Device> found;
    const int count = number_in("CUDA_DOUBLE_DEVICES", 0);
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    for (int index = 0; visible == nullptr && index < count; ++index) found.push_back({index, ""});
    std::string rest = visible == nullptr ? "" : visible;
    while (!rest.empty()) {
      const auto word = rest.substr(0, rest.find(','));
      rest.erase(0, word.size() + 1);
      const bool is_mig = word.rfind("MIG-", 0) == 0;
      const int index = is_mig ? 0 : std::atoi(word.c_str());
      if ((!is_mig && word.find_first_not_of("0123456789") != std::string::npos) || index >= count) break;
      found.push_back({index, is_mig ? word : ""});
    }
    return found;
  }();
  return all;
}

bool is_device(int device) { return device >= 0 && static_cast<std::size_t>(device) < devices().size(); }

std::array<unsigned char, kUuidSize> uuid_of_gpu(int index) {
  std::array<unsigned char, kUuidSize> uuid{};
  uuid.fill(static_cast<unsigned char>(0xa0 + index));
  return uuid;
}

std::array<unsigned char, kUuidSize> uuid_in(const std::string& mig) {
  std::array<unsigned char, kUuidSize> uuid{};
  std::string digits;
  for (const char c : mig.substr(4)) {
    if (c != '-') digits += c;
  }
  for (std::size_t i = 0; i < uuid.size() && 2 * i + 1 < digits.size(); ++i) {
    uuid[i] = static_cast<unsigned char>(std::strtoul(digits.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return uuid;
}

// Returns 0 if CUDA is initialized and has this device.
int check(int device = 0) { return !is_initialized ? kNotInitialized : is_device(device) ? kSuccess : kInvalidDevice; }
int check_context() { return current == kNone ? kInvalidContext : kSuccess; }

int print(char* text, int size, const char* format, int value = 0) {
  const int length = std::snprintf(text, static_cast<std::size_t>(size), format, value);
  return length < size ? kSuccess : kInvalidValue;
}

const Device& found(int device) { return devices()[static_cast<std::size_t>(device)]; }

}  // namespace

CUDA_DOUBLE_API cuInit(unsigned flags) {
  while (std::getenv("CUDA_DOUBLE_STALL") != nullptr) (void)::pause();
  if (flags != 0) return kInvalidValue;
  if (devices().empty()) return kNoDevice;
  is_initialized = true;
  return kSuccess;
}

CUDA_DOUBLE_API cuDriverGetVersion(int* version) {
  *version = number_in("CUDA_DOUBLE_VERSION", 13000);
  return kSuccess;
}

CUDA_DOUBLE_API cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return check(ordinal);
}

CUDA_DOUBLE_API cuDevicePrimaryCtxRetain(void** context, int device) {
  if (const int code = check(device); code != kSuccess) return code;
  *context = reinterpret_cast<void*>(static_cast<std::intptr_t>(device) + 1);  // not null, which is no context
  return kSuccess;
}

CUDA_DOUBLE_API cuCtxSetCurrent(void* context) {
  if (!is_initialized) return kNotInitialized;
  current = static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1;
  return kSuccess;
}

CUDA_DOUBLE_API cuCtxGetDevice(int* device) {
  if (!is_initialized) return kNotInitialized;
  if (current != kNone) *device = current;
  return check_context();
}

CUDA_DOUBLE_API cuDeviceGetPCIBusId(char* text, int size, int device) {
  if (const int code = check(device); code != kSuccess) return code;
  // In capital letters, so that comparisons of ids must ignore case.
  return print(text, size, "0000:%02X:00.0", 0x1a + 0x10 * found(device).index);
}

CUDA_DOUBLE_API cuDeviceGetUuid(unsigned char* uuid, int device) {
  if (const int code = check(device); code != kSuccess) return code;
  std::memcpy(uuid, uuid_of_gpu(found(device).index).data(), kUuidSize);
  return kSuccess;
}

CUDA_DOUBLE_API cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  if (const int code = check(device); code != kSuccess) return code;
  const auto& of = found(device);
  std::memcpy(uuid, (of.mig.empty() ? uuid_of_gpu(of.index) : uuid_in(of.mig)).data(), kUuidSize);
  return kSuccess;
}

CUDA_DOUBLE_API cuGetErrorString(int code, const char** text) {
  static const std::map<int, const char*> texts = {{kNotInitialized, "initialization error"},
                                                   {kNoDevice, "no CUDA-capable device is detected"},
                                                   {kInvalidDevice, "invalid device ordinal"}};
  const auto known = texts.find(code);
  *text = known == texts.end() ? nullptr : known->second;
  return *text == nullptr ? kInvalidValue : kSuccess;
}
