// NCCL, or RCCL, without linking: the functions of one loaded copy, and our own declarations of its types.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>

#include "comm/nccl/cuda_device.h"
#include "core/util/text.h"

namespace bootstrap::nccl {

namespace {

bool is_nccl(const Functions& functions) { return functions.init_rank != nullptr; }

// The library for the step's GPUs first; the error is about that one.
Result<Functions> open_library(std::string_view preferred) {
  std::string reason;
  for (const auto* const libraries : likely_gpu_libraries()) {
    if (!preferred.empty() && !reason.empty()) break;
    const std::string file(preferred.empty() ? libraries->nccl_files.front() : preferred);
    void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const said = ::dlerror();
      if (reason.empty()) reason = said == nullptr ? file : said;
      continue;
    }
    auto found = functions_in(handle);
    if (is_nccl(found)) return found;
    (void)::dlclose(handle);
    return fail(ErrorCode::kUnavailable, cat({file, " has no ncclCommInitRank: it is not ", product(),
                                              "; set SLURM_BOOTSTRAP_NCCL to a ", libraries->nccl_file()}));
  }
  const bool is_there = reason.find("undefined symbol") != std::string::npos;
  return fail(ErrorCode::kUnavailable,
              cat({"cannot load ", product(), ", which the program has not loaded either: ", reason,
                   is_there ? "; this file does not fit the other libraries of this node, such as CUDA's; set "
                              "SLURM_BOOTSTRAP_NCCL to another"
                            : "; add its folder to LD_LIBRARY_PATH, or set SLURM_BOOTSTRAP_NCCL to the file"}));
}

Result<Functions> check_age(Functions found) {
  const bool is_old = found.get_version != nullptr && found.version < kOldestVersion;
  if (found.find.is_whole && !is_old) return found;
  return fail(
      ErrorCode::kUnsupported,
      cat({product(), " in ", found.path, " is ", is_old ? version_text(found.version) : "incomplete",
           "; set SLURM_BOOTSTRAP_NCCL to a ", used_gpu_libraries().nccl_file(), " of ", product(), " 2.14 or newer"}));
}

// The copy in this process, by its usual file name or as a global symbol; else opens a library.
Result<Functions> find_or_open(std::string_view preferred) {
  for (void* const library : {open_first(used_gpu_libraries().nccl_files, RTLD_LAZY | RTLD_NOLOAD), RTLD_DEFAULT}) {
    auto found = functions_in(library);
    if (is_nccl(found)) return check_age(std::move(found));
  }
  auto opened = open_library(preferred);
  return opened ? check_age(std::move(*opened)) : opened;
}

}  // namespace

std::string_view product() { return used_gpu_libraries().nccl; }

std::string version_text(int version) {
  if (version <= 0) return "of unknown version";
  // Up to 2.8 a minor version had one digit: 2708 is 2.7.8 (NCCL_VERSION in nccl.h).
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
  return cat({std::to_string(major), ".", std::to_string(minor), ".", std::to_string(version % 100)});
}

Functions functions_in(void* library) {
  Functions found{{library}};
  if (found.init_rank == nullptr) return {};
  if (found.get_version != nullptr && found.get_version(&found.version) != kSuccess) found.version = 0;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(found.init_rank), &info) != 0 && info.dli_fname != nullptr) {
    found.path = info.dli_fname;
  }
  return found;
}

Result<const Functions*> load(std::string_view preferred) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static const Functions* loaded = nullptr;  // never deleted
  if (loaded != nullptr) return loaded;
  auto found = find_or_open(preferred);
  if (!found) return fail(found.error());
  // Our own reference is never closed: other code may close its reference, and threads may run in the library until
  // the process ends.
  (void)::dlopen(found->path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  loaded = new Functions(std::move(*found));
  return loaded;
}

const char* fixed_root() {
  const char* const address = std::getenv("NCCL_COMM_ID");
  return address == nullptr || address[0] == '\0' ? nullptr : address;
}

std::string fixed_root_hint() {
  if (fixed_root() == nullptr) return "";
  return cat({"; NCCL_COMM_ID=", printable(fixed_root()),
              " is in the environment, so that NCCL starts at this address and at no other; unset it"});
}

std::string describe(const Functions& nccl, std::string_view call, ResultCode code, Comm comm) {
  const char* const reason = nccl.get_error_string == nullptr ? nullptr : nccl.get_error_string(code);
  const char* const details = nccl.get_last_error == nullptr ? nullptr : nccl.get_last_error(comm);
  auto text = cat({call, " failed: ", reason != nullptr ? reason : cat({"error ", std::to_string(code)})});
  if (details == nullptr || details[0] == '\0') return text;
  constexpr std::size_t kMaxDetails = 300;
  std::string shown(std::string_view(details).substr(0, kMaxDetails));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return cat({text, " (", trim(shown), ")"});
}

}  // namespace bootstrap::nccl

namespace bootstrap {

Deadline end_of_own_part(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return deadline - std::min<Deadline::duration>(std::chrono::seconds(5), left / 4);
}

// The name in messages is fixed, since product() needs the loader's lock, which dlopen(3) holds while a library starts.
Result<const nccl::Functions*> prepare_nccl(const std::string& preferred, std::optional<int> device,
                                            Deadline deadline) {
  const auto work = [preferred, device]() -> Result<const nccl::Functions*> {
    auto nccl = nccl::load(preferred);
    if (!nccl) return nccl;
    if (device && *device < 0) (void)current_gpu();
    if (device && *device >= 0) {
      if (const auto status = use_gpu(*device); !status) return fail(status.error());
    }
    return nccl;
  };
  return call_with_deadline<const nccl::Functions*>("the start of NCCL and the GPU on this rank", work, deadline);
}

}  // namespace bootstrap

// Compares our declarations with the header, where it is installed.
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#elif __has_include(<rccl/rccl.h>) && __has_include(<hip/hip_runtime_api.h>)
#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__
#endif
#include <rccl/rccl.h>
#endif
#if defined(NCCL_VERSION_CODE) && NCCL_VERSION_CODE >= 21400
namespace bootstrap::nccl {
static_assert(ncclSuccess == kSuccess && ncclSystemError == kSystemError);
static_assert(ncclRemoteError == kRemoteError && ncclInProgress == kInProgress);
// NOLINTNEXTLINE(misc-redundant-expression): two types, which clang-tidy takes for one.
static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId) && alignof(ncclUniqueId) == alignof(UniqueId));
static_assert(std::is_trivially_copyable_v<UniqueId>, "it is passed by value, as a C structure is");
static_assert(offsetof(ncclConfig_t, size) == offsetof(Config, size));
static_assert(offsetof(ncclConfig_t, magic) == offsetof(Config, magic));
static_assert(offsetof(ncclConfig_t, version) == offsetof(Config, version));
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(Config, blocking));
static_assert(sizeof(ncclConfig_t::size) == sizeof(Config::size));
static_assert(sizeof(ncclConfig_t::blocking) == sizeof(Config::blocking));
static_assert(ncclConfig_t(NCCL_CONFIG_INITIALIZER).magic == Config().magic);
static_assert(kOldestVersion == NCCL_VERSION(2, 14, 0) && Config().version == kOldestVersion);
static_assert(kIsSameCall<decltype(ncclGetVersion), decltype(Functions::get_version)>);
static_assert(kIsSameCall<decltype(ncclGetUniqueId), decltype(Functions::get_unique_id)>);
static_assert(kIsSameCall<decltype(ncclCommInitRank), decltype(Functions::init_rank)>);
static_assert(kIsSameCall<decltype(ncclCommInitRankConfig), decltype(Functions::init_rank_config)>);
static_assert(kIsSameCall<decltype(ncclCommAbort), decltype(Functions::abort)>);
static_assert(kIsSameCall<decltype(ncclCommGetAsyncError), decltype(Functions::get_async_error)>);
static_assert(kIsSameCall<decltype(ncclGetErrorString), decltype(Functions::get_error_string)>);
static_assert(kIsSameCall<decltype(ncclGetLastError), decltype(Functions::get_last_error)>);
#if NCCL_VERSION_CODE >= 22304
static_assert(kIsSameCall<decltype(ncclCommInitRankScalable), decltype(Functions::init_rank_scalable)>);
#endif
}  // namespace bootstrap::nccl
#endif
