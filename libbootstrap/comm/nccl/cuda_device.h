// The GPU of the calling thread, through CUDA or HIP as the process has loaded them; nothing is linked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/hardware/gpu_list.h"
#include "core/util/result.h"

namespace bootstrap {

// True if arguments and result of a function in a vendor's header have the sizes of those in the pointer that we
// declare.
template <class Function>
struct SizesOf;
template <class Value, class... Arguments>
struct SizesOf<Value(Arguments...)> {
  // NOLINTNEXTLINE(bugprone-sizeof-expression): the size of a pointer is meant.
  using Type = std::index_sequence<sizeof(Value), sizeof(Arguments)...>;
};
template <class Theirs, class Ours>
inline constexpr bool kIsSameCall =
    std::is_same_v<typename SizesOf<Theirs>::Type, typename SizesOf<std::remove_pointer_t<Ours>>::Type>;

// What differs between NVIDIA and AMD; RCCL has NCCL's symbols. Files are tried in order, up to a null. In PyTorch's
// wheels for ROCm the names of the files have no version.
struct GpuLibraries {
  GpuVendor vendor;
  std::string_view nccl;
  std::array<const char*, 2> nccl_files;
  std::array<const char*, 4> runtime_files;
  std::string_view runtime_file;  // for people

  const char* nccl_file() const { return nccl_files.front(); }
};

inline constexpr std::array<GpuLibraries, 2> kGpuLibraries{{
    {GpuVendor::kNvidia, "NCCL", {"libnccl.so.2"}, {"libcuda.so.1"}, "libcuda.so.1"},
    {GpuVendor::kAmd,
     "RCCL",
     {"librccl.so.1", "librccl.so"},
     {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
     "libamdhip64.so"},
}};

// First the vendor whose libraries this process has loaded, else that of the step's GPUs. Loads nothing.
std::array<const GpuLibraries*, 2> likely_gpu_libraries();
inline const GpuLibraries& used_gpu_libraries() { return *likely_gpu_libraries().front(); }

// The handle of the first of these files that exists, or null; `flags` are dlopen's.
void* open_first(std::span<const char* const> files, int flags);

// Makes the GPU with this ordinal current in the calling thread, for every CUDA runtime in the process: through the
// driver, by its primary context. For AMD it is hipSetDevice. kUnavailable with the reason of CUDA or HIP.
Status use_gpu(int ordinal);

struct CurrentGpu {
  int ordinal = 0;
  std::string id;  // PCI bus id, "0000:3b:00.0", or the UUID of a MIG instance: equal in all processes of the node
};

// The GPU of this thread's next call to CUDA or HIP. Empty if the process has loaded neither. Makes no context, and
// loads no library.
std::optional<CurrentGpu> current_gpu();

// Version of NVIDIA's driver as CUDA numbers it (13000 for 13.0); empty without a driver. Loads libcuda.so.1.
std::optional<int> driver_version();

}  // namespace bootstrap
