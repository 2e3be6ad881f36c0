// NCCL, or RCCL, without linking to it: the functions of one loaded copy, found by name, and our own declarations of
// its types. SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "comm/nccl/gpu_libraries.h"
#include "core/util/text.h"

namespace bootstrap::nccl {

namespace {

std::atomic<const Functions*> loaded = nullptr;  // by load(); never deleted

const void* own_address() { return reinterpret_cast<const void*>(&own_address); }

const void* start_of_object(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

// The shared object that holds this address, with a reference that the caller gives back; null for the program itself.
void* handle_of(const void* address) {
  Dl_info info{};
  link_map* map = nullptr;
  if (::dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr) return nullptr;
  if (map->l_name == nullptr || map->l_name[0] == '\0') return nullptr;
  return ::dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
}

// Whether the function is one that libbootstrap puts in front of NCCL's: ours, or another copy's (one preloaded by the
// plugin, one that the program is linked with). Two copies that took each other for NCCL would call each other for
// ever.
bool is_interposed(const void* function) {
  const void* const object = start_of_object(function);
  if (object == start_of_object(own_address())) return true;
  void* const handle = handle_of(function);
  if (handle == nullptr) return false;
  const void* const mark = ::dlsym(handle, "bootstrap_version");
  const bool is_ours = mark != nullptr && start_of_object(mark) == object;
  (void)::dlclose(handle);
  return is_ours;
}

// The order of symbols in which everybody's calls are bound. Not RTLD_DEFAULT: it begins with the caller's own object
// where that was linked with -Bsymbolic, as ours is.
void* order_of_process() {
  static void* const order = ::dlopen(nullptr, RTLD_LAZY);
  return order;
}

// Where functions are looked for: a handle, or RTLD_NEXT.
struct SymbolSource {
  void* handle = nullptr;
  // Whoever calls us by this name may be a library in front of us with functions of the same names, such as a tracer
  // that was preloaded before. It would pass our call back to us for ever.
  bool is_callers = false;
};

void* find(const SymbolSource& source, const char* name) {
  void* const found = ::dlsym(source.handle, name);
  if (found == nullptr || is_interposed(found)) return nullptr;
  return source.is_callers && found == ::dlsym(order_of_process(), name) ? nullptr : found;
}

template <class Function>
void take(const SymbolSource& source, const char* name, Function& member) {
  member = reinterpret_cast<Function>(find(source, name));
}

// All functions of one source: never some of one copy and some of another.
Functions functions_of(const SymbolSource& source) {
  Functions found;
  take(source, "ncclGetVersion", found.get_version);
  take(source, "ncclGetUniqueId", found.get_unique_id);
  take(source, "ncclCommInitRank", found.init_rank);
  take(source, "ncclCommInitRankConfig", found.init_rank_config);
  take(source, "ncclCommInitRankScalable", found.init_rank_scalable);
  take(source, "ncclCommInitAll", found.init_all);
  take(source, "ncclCommSplit", found.split);
  take(source, "ncclGroupStart", found.group_start);
  take(source, "ncclGroupEnd", found.group_end);
  take(source, "ncclCommCount", found.count);
  take(source, "ncclCommUserRank", found.user_rank);
  take(source, "ncclCommAbort", found.abort);
  take(source, "ncclCommDestroy", found.destroy);
  take(source, "ncclCommGetAsyncError", found.get_async_error);
  take(source, "ncclAllReduce", found.all_reduce);
  take(source, "ncclGetErrorString", found.get_error_string);
  take(source, "ncclGetLastError", found.get_last_error);
  if (found.init_rank == nullptr) return {};
  if (found.get_version != nullptr && found.get_version(&found.version) != kSuccess) found.version = 0;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(found.init_rank), &info) != 0 && info.dli_fname != nullptr) {
    found.path = info.dli_fname;
  }
  return found;
}

bool is_nccl(const Functions& functions) { return functions.init_rank != nullptr; }

// Of NCCL, or of RCCL.
void* loaded_library() { return open_first(used_gpu_libraries().nccl_files, RTLD_LAZY | RTLD_NOLOAD); }

Functions functions_of_loaded_library() {
  void* const handle = loaded_library();
  if (handle == nullptr) return {};
  auto found = functions_of({handle});
  (void)::dlclose(handle);  // the process has it; load() keeps it
  return found;
}

// What the process' own order of symbols has, ours passed over: NCCL linked into the program, or by another name.
Functions functions_of_process() {
  auto found = functions_of({order_of_process()});
  return is_nccl(found) ? found : functions_of({RTLD_NEXT});
}

// That of the step's GPUs first; what went wrong is said of it alone.
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
    auto found = functions_of({handle});
    if (is_nccl(found)) return found;
    (void)::dlclose(handle);
    return fail(ErrorCode::kUnavailable, cat({file, " has no ncclCommInitRank: it is not ", product(),
                                              "; set SLURM_BOOTSTRAP_NCCL to a ", libraries->nccl_file}));
  }
  const bool is_there = reason.find("undefined symbol") != std::string::npos;
  return fail(ErrorCode::kUnavailable,
              cat({"cannot load ", product(), ", which the program has not loaded either: ", reason,
                   is_there ? "; this file does not fit the other libraries of this node, CUDA's for one; set "
                              "SLURM_BOOTSTRAP_NCCL to another"
                            : "; add its folder to LD_LIBRARY_PATH, or set SLURM_BOOTSTRAP_NCCL to the file"}));
}

Result<Functions> check_age(Functions found) {
  const bool is_whole = found.get_unique_id != nullptr && found.get_version != nullptr;
  if (is_whole && found.version >= kOldestVersion) return found;
  return fail(
      ErrorCode::kUnsupported,
      cat({product(), " in ", found.path, " is ", is_whole ? version_text(found.version) : "incomplete",
           "; set SLURM_BOOTSTRAP_NCCL to a ", used_gpu_libraries().nccl_file, " of ", product(), " 2.14 or newer"}));
}

Result<Functions> find_or_open(std::string_view preferred) {
  auto found = functions_of_loaded_library();
  if (!is_nccl(found)) found = functions_of_process();
  if (is_nccl(found)) return check_age(std::move(found));
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

Result<const Functions*> load(std::string_view preferred) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const auto* const before = loaded.load()) return before;
  auto found = find_or_open(preferred);
  if (!found) return fail(found.error());
  // A reference of our own, for good: whoever opened it may close it, and threads may be in it when the process ends.
  (void)::dlopen(found->path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  loaded = new Functions(std::move(*found));
  return loaded.load();
}

bool has_loaded() noexcept { return loaded != nullptr; }

// In the order in which the loader would have bound the call without us: what all see, then what the caller needs.
Functions functions_for(const void* caller) {
  auto found = functions_of({RTLD_NEXT});
  if (is_nccl(found)) return found;
  if (void* const handle = handle_of(caller); handle != nullptr) {
    found = functions_of({handle, true});
    (void)::dlclose(handle);  // its library is in use by the caller, and so are those that it needs
    if (is_nccl(found)) return found;
  }
  return functions_of_loaded_library();
}

void* function_for(const void* caller, const char* name) {
  void* found = find({RTLD_NEXT}, name);
  if (found != nullptr) return found;
  if (void* const handle = handle_of(caller); handle != nullptr) {
    found = find({handle, true}, name);
    (void)::dlclose(handle);
    if (found != nullptr) return found;
  }
  void* const library = loaded_library();
  if (library == nullptr) return nullptr;
  found = find({library}, name);
  (void)::dlclose(library);
  return found;
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
