// The GPU of the calling thread, through CUDA or HIP as the process has loaded them; nothing is linked.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/cuda_device.h"

#include <dlfcn.h>

#include <cstdlib>

#include "core/util/text.h"
#include "probe/own_process.h"

namespace bootstrap {
namespace {

bool is_loaded(std::span<const char* const> files) {
  void* const handle = open_first(files, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) (void)::dlclose(handle);
  return handle != nullptr;
}

}  // namespace

std::array<const GpuLibraries*, 2> likely_gpu_libraries() {
  // Slurm lists a step's AMD GPUs in ROCR_VISIBLE_DEVICES. Without AutoDetect= and Flags= in gres.conf it sets CUDA's
  // list, too, so that the vendor is unknown.
  const bool has_amd_list =
      std::getenv("ROCR_VISIBLE_DEVICES") != nullptr && std::getenv("CUDA_VISIBLE_DEVICES") == nullptr;
  const auto* const of_step = &kGpuLibraries[has_amd_list ? 1 : 0];
  const auto* const other = &kGpuLibraries[has_amd_list ? 0 : 1];
  const std::array as_step{of_step, other};
  const std::array reversed{other, of_step};
  // NCCL before the runtimes: tools for both vendors load a runtime that the program does not use.
  if (is_loaded(of_step->nccl_files)) return as_step;
  if (is_loaded(other->nccl_files)) return reversed;
  if (is_loaded(of_step->runtime_files)) return as_step;
  return is_loaded(other->runtime_files) ? reversed : as_step;
}

void* open_first(std::span<const char* const> files, int flags) {
  for (const auto* const file : files) {
    if (file == nullptr) break;
    if (void* const handle = ::dlopen(file, flags); handle != nullptr) return handle;
  }
  return nullptr;
}

namespace {

// From cuda.h, cuda_runtime_api.h and hip_runtime_api.h; unchanged since CUDA 4.
using Code = int;
using Device = int;
using Context = void*;
using Uuid = std::array<unsigned char, 16>;
constexpr Code kGpuSuccess = 0;

struct Driver {
  Symbols find;
  Code (*init)(unsigned flags) = find("cuInit");
  Code (*driver_version)(int* version) = find("cuDriverGetVersion");
  Code (*device)(Device* device, int ordinal) = find("cuDeviceGet");
  Code (*retain_context)(Context* context, Device device) = find("cuDevicePrimaryCtxRetain");
  Code (*set_context)(Context context) = find("cuCtxSetCurrent");
  Code (*device_of_context)(Device* device) = find("cuCtxGetDevice");
  Code (*bus_id)(char* text, int size, Device device) = find("cuDeviceGetPCIBusId");
  // The first is the whole GPU's. The second, since CUDA 11.4, is the MIG instance's if the device is one.
  Code (*uuid)(Uuid* uuid, Device device) = find.if_there("cuDeviceGetUuid");
  Code (*part_uuid)(Uuid* uuid, Device device) = find.if_there("cuDeviceGetUuid_v2");
  Code (*error_string)(Code code, const char** text) = find.if_there("cuGetErrorString");
};

// From hip_runtime_api.h, with CUDA's codes. No hipDeviceGet and no contexts: the device of a thread is an ordinal.
struct Hip {
  Symbols find;
  Code (*set_device)(int ordinal) = find("hipSetDevice");
  Code (*get_device)(int* ordinal) = find("hipGetDevice");
  Code (*bus_id)(char* text, int size, int ordinal) = find("hipDeviceGetPCIBusId");
  const char* (*error_string)(Code code) = find("hipGetErrorString");
};

// The library stays open, since the process may use it.
template <class Table>
std::optional<Table> table_of(void* library) {
  if (library == nullptr) return std::nullopt;
  const Table table{{library}};
  return table.find.is_whole ? std::optional(table) : std::nullopt;
}

std::optional<Driver> open_driver(int flags) { return table_of<Driver>(::dlopen("libcuda.so.1", RTLD_NOW | flags)); }

// HIP, unless CUDA's driver is there and more likely.
std::optional<Hip> open_hip(int flags) {
  for (const auto* const one : likely_gpu_libraries()) {
    void* const library = open_first(one->runtime_files, flags);
    if (library != nullptr) return one->vendor == GpuVendor::kAmd ? table_of<Hip>(library) : std::nullopt;
  }
  return std::nullopt;
}

// cudaGetDevice of the runtime that the process has loaded, or null.
auto loaded_runtime() {
  Code (*get_device)(int* ordinal) = nullptr;
  for (const char* const name : {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}) {
    void* const library = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) continue;
    get_device = Symbols{library}.if_there("cudaGetDevice");
    break;
  }
  return get_device;
}

std::string reason_of(const Driver& driver, Code code) {
  const char* reason = nullptr;
  if (driver.error_string == nullptr || driver.error_string(code, &reason) != kGpuSuccess) reason = nullptr;
  return cat({reason == nullptr ? "CUDA error" : reason, " (", std::to_string(code), ")"});
}

std::string reason_of(const Hip& hip, Code code) {
  const char* const reason = hip.error_string(code);
  return cat({reason == nullptr ? "HIP error" : reason, " (", std::to_string(code), ")"});
}

tl::unexpected<Error> refused(int ordinal, const std::string& reason) {
  return fail(ErrorCode::kUnavailable, cat({"GPU ", std::to_string(ordinal), " cannot be used: ", reason}));
}

// "MIG-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", as nvidia-smi -L shows it.
std::string name_of(const char* prefix, const Uuid& uuid) {
  std::string text = prefix;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += to_hex(uuid[i], 2);
  }
  return text;
}

constexpr int kBusIdSize = 32;

std::optional<std::string> id_of(const Driver& driver, Device device) {
  Uuid part{};
  if (driver.part_uuid != nullptr && driver.part_uuid(&part, device) == kGpuSuccess) {
    Uuid whole{};
    if (driver.uuid == nullptr || driver.uuid(&whole, device) != kGpuSuccess) return name_of("GPU-", part);
    if (whole != part) return name_of("MIG-", part);
  }
  std::array<char, kBusIdSize> text{};
  if (driver.bus_id(text.data(), kBusIdSize, device) != kGpuSuccess) return std::nullopt;
  return normal_pci(text.data());  // runtimes write the letters in different cases
}

// Without a loaded runtime the thread's context gives the device, and without a context the result is empty: a
// statically linked runtime may have chosen a device that the driver does not know.
std::optional<CurrentGpu> ask_cuda() {
  const auto get_device = loaded_runtime();
  const auto driver = open_driver(get_device == nullptr ? RTLD_NOLOAD : 0);
  CurrentGpu gpu;  // a CUdevice is its ordinal, and the runtime has the same ordinals
  if (!driver) return std::nullopt;
  const bool is_known = get_device == nullptr
                            ? driver->device_of_context(&gpu.ordinal) == kGpuSuccess
                            : get_device(&gpu.ordinal) == kGpuSuccess && driver->init(0) == kGpuSuccess;
  auto id = is_known ? id_of(*driver, gpu.ordinal) : std::nullopt;
  if (!id) return std::nullopt;
  gpu.id = std::move(*id);
  return gpu;
}

std::optional<CurrentGpu> ask_hip(const Hip& hip) {
  CurrentGpu gpu;
  std::array<char, kBusIdSize> text{};
  if (hip.get_device(&gpu.ordinal) != kGpuSuccess) return std::nullopt;
  if (hip.bus_id(text.data(), kBusIdSize, gpu.ordinal) != kGpuSuccess) return std::nullopt;
  gpu.id = normal_pci(text.data()).value_or("");
  return gpu;
}

}  // namespace

Status use_gpu(int ordinal) {
  if (const auto hip = open_hip(RTLD_NOW)) {
    const Code code = hip->set_device(ordinal);
    if (code != kGpuSuccess) return refused(ordinal, reason_of(*hip, code));
    return {};
  }
  const auto driver = open_driver(0);
  if (!driver) {
    return refused(ordinal, cat({"there is no ", used_gpu_libraries().runtime_file,
                                 "; install the driver, or pass it to the container"}));
  }
  Device device = 0;
  Context context = nullptr;
  Code code = driver->init(0);
  if (code == kGpuSuccess) code = driver->device(&device, ordinal);
  // Never released: CUDA's runtime and NCCL use this context, and the last release would destroy it.
  if (code == kGpuSuccess) code = driver->retain_context(&context, device);
  if (code == kGpuSuccess) code = driver->set_context(context);
  if (code != kGpuSuccess) return refused(ordinal, reason_of(*driver, code));
  return {};
}

std::optional<CurrentGpu> current_gpu() {
  if (const auto hip = open_hip(RTLD_NOW | RTLD_NOLOAD)) return ask_hip(*hip);
  return ask_cuda();
}

std::optional<int> driver_version() {
  const auto driver = open_driver(0);
  int version = 0;
  if (!driver || driver->driver_version(&version) != kGpuSuccess) return std::nullopt;
  return version;
}

}  // namespace bootstrap

// Compares our declarations with the headers, where they are installed.
#if __has_include(<cuda.h>) && __has_include(<cuda_runtime_api.h>)
#include <cuda.h>
#include <cuda_runtime_api.h>
namespace bootstrap {
static_assert(CUDA_SUCCESS == kGpuSuccess && cudaSuccess == kGpuSuccess && sizeof(CUuuid) == sizeof(Uuid));
static_assert(kIsSameCall<decltype(cuInit), decltype(Driver::init)>);
static_assert(kIsSameCall<decltype(cuDriverGetVersion), decltype(Driver::driver_version)>);
static_assert(kIsSameCall<decltype(cuDeviceGet), decltype(Driver::device)>);
static_assert(kIsSameCall<decltype(cuDevicePrimaryCtxRetain), decltype(Driver::retain_context)>);
static_assert(kIsSameCall<decltype(cuCtxSetCurrent), decltype(Driver::set_context)>);
static_assert(kIsSameCall<decltype(cuCtxGetDevice), decltype(Driver::device_of_context)>);
static_assert(kIsSameCall<decltype(cuDeviceGetPCIBusId), decltype(Driver::bus_id)>);
static_assert(kIsSameCall<decltype(cuDeviceGetUuid), decltype(Driver::uuid)>);
static_assert(kIsSameCall<decltype(cuGetErrorString), decltype(Driver::error_string)>);
static_assert(kIsSameCall<decltype(cudaGetDevice), decltype(loaded_runtime())>);
}  // namespace bootstrap
#endif
