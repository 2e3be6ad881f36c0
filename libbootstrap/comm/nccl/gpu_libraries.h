// What differs between the libraries of NVIDIA and of AMD: files, functions and words. RCCL has NCCL's symbols.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "core/hardware/topology.h"

namespace bootstrap {

// Files are tried in order; null: no more. PyTorch's wheels for ROCm have their copies without numbers.
struct GpuLibraries {
  GpuVendor vendor;
  std::string_view nccl;
  std::array<const char*, 2> nccl_files;
  std::string_view nccl_file;  // for people
  std::string_view runtime;
  std::array<const char*, 4> runtime_files;
  std::string_view runtime_file;  // for people
};

inline constexpr std::array<GpuLibraries, 2> kGpuLibraries{{
    {GpuVendor::kNvidia, "NCCL", {"libnccl.so.2"}, "libnccl.so.2", "CUDA", {"libcuda.so.1"}, "libcuda.so.1"},
    {GpuVendor::kAmd,
     "RCCL",
     {"librccl.so.1", "librccl.so"},
     "librccl.so.1",
     "HIP",
     {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
     "libamdhip64.so"},
}};

// A function of the runtime that both have with the same arguments.
struct GpuCall {
  const char* cuda;
  const char* hip;
};

// The likely one first: whose libraries this process has loaded, else those of the step's GPUs. Loads nothing.
std::array<const GpuLibraries*, 2> likely_gpu_libraries();
inline const GpuLibraries& used_gpu_libraries() { return *likely_gpu_libraries().front(); }

// Of the first of these files that is there; `flags` are dlopen's. Null: none.
void* open_first(const char* const* files, std::size_t count, int flags);
template <std::size_t kCount>
void* open_first(const std::array<const char*, kCount>& files, int flags) {
  return open_first(files.data(), kCount, flags);
}

struct GpuRuntime {
  const GpuLibraries* of = nullptr;
  void* handle = nullptr;  // null: there is none
};

// CUDA's driver or HIP, whichever is likely and there. It stays open: it must not go while the process uses it.
GpuRuntime open_gpu_runtime(int flags);

}  // namespace bootstrap
