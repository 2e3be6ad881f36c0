// What differs between the libraries of NVIDIA and of AMD: files, functions and words. RCCL has NCCL's symbols.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/gpu_libraries.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

namespace bootstrap {
namespace {

template <std::size_t kCount>
bool is_loaded(const std::array<const char*, kCount>& files) {
  void* const handle = open_first(files, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) (void)::dlclose(handle);
  return handle != nullptr;
}

// Slurm tells a step its AMD GPUs in ROCR_VISIBLE_DEVICES. Without AutoDetect= and Flags= it sets CUDA's list, too, and
// nobody knows which of both is meant.
bool has_amd_list() {
  return std::getenv("ROCR_VISIBLE_DEVICES") != nullptr && std::getenv("CUDA_VISIBLE_DEVICES") == nullptr;
}

const GpuLibraries* likely() {
  const auto* const nvidia = kGpuLibraries.data();
  const auto* const amd = nvidia + 1;
  const auto* const of_step = has_amd_list() ? amd : nvidia;
  const auto* const other = of_step == amd ? nvidia : amd;
  // NCCL comes first: tools for both vendors load a runtime that the program does not use.
  for (const auto* const one : {of_step, other}) {
    if (is_loaded(one->nccl_files)) return one;
  }
  for (const auto* const one : {of_step, other}) {
    if (is_loaded(one->runtime_files)) return one;
  }
  return of_step;
}

}  // namespace

std::array<const GpuLibraries*, 2> likely_gpu_libraries() {
  const auto* const first = likely();
  return {first, first == kGpuLibraries.data() ? first + 1 : kGpuLibraries.data()};
}

void* open_first(const char* const* files, std::size_t count, int flags) {
  for (std::size_t i = 0; i < count && files[i] != nullptr; ++i) {
    if (void* const handle = ::dlopen(files[i], flags); handle != nullptr) return handle;
  }
  return nullptr;
}

GpuRuntime open_gpu_runtime(int flags) {
  const auto likely = likely_gpu_libraries();
  for (const auto* const one : likely) {
    if (void* const handle = open_first(one->runtime_files, flags); handle != nullptr) return {one, handle};
  }
  return {likely.front(), nullptr};
}

}  // namespace bootstrap
