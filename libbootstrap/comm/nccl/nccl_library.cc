// NCCL without linking to it: the functions of one loaded copy, found by name, and our own declarations of its types.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <type_traits>

#include "core/util/text.h"

#ifdef BOOTSTRAP_HAVE_NCCL_H
#include <nccl.h>
#endif

namespace bootstrap::nccl {

#ifdef BOOTSTRAP_HAVE_NCCL_H
// Our declarations against those of the nccl.h that is there; tests/unit/nccl_abi.py shows that they can fail.
namespace {

// What a type of nccl.h is in ours.
template <class T>
struct Ours {
  using Type = T;
};
template <class T>
struct Ours<T*> {
  using Type = typename Ours<T>::Type*;
};
template <class T>
struct Ours<const T> {
  using Type = const typename Ours<T>::Type;
};
template <>
struct Ours<ncclResult_t> {
  using Type = ResultCode;
};
template <>
struct Ours<ncclDataType_t> {
  using Type = DataType;
};
template <>
struct Ours<ncclRedOp_t> {
  using Type = Operation;
};
template <>
struct Ours<ncclUniqueId> {
  using Type = UniqueId;
};
template <>
struct Ours<ncclConfig_t> {
  using Type = void;
};
template <class Value, class... Arguments>
struct Ours<Value(Arguments...)> {
  using Type = typename Ours<Value>::Type(typename Ours<Arguments>::Type...);
};

template <class Theirs, class Member>
constexpr bool kSame = std::is_same_v<typename Ours<Theirs>::Type*, Member>;

static_assert(sizeof(ncclResult_t) == sizeof(ResultCode));
static_assert(ncclSuccess == kSuccess && ncclInvalidArgument == kInvalidArgument);
static_assert(ncclInvalidUsage == kInvalidUsage && ncclInProgress == kInProgress);

static_assert(sizeof(ncclDataType_t) == sizeof(DataType) && ncclFloat32 == kFloat32);
static_assert(sizeof(ncclRedOp_t) == sizeof(Operation) && ncclSum == kSum);

static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId));
static_assert(alignof(ncclUniqueId) == alignof(UniqueId));
static_assert(std::is_trivially_copyable_v<UniqueId>, "it is handed over by value, as a C structure is");

static_assert(offsetof(ncclConfig_t, size) == offsetof(Config, size));
static_assert(offsetof(ncclConfig_t, magic) == offsetof(Config, magic));
static_assert(offsetof(ncclConfig_t, version) == offsetof(Config, version));
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(Config, blocking));
static_assert(std::is_same_v<decltype(ncclConfig_t::size), decltype(Config::size)>);
static_assert(std::is_same_v<decltype(ncclConfig_t::blocking), decltype(Config::blocking)>);
static_assert(ncclConfig_t(NCCL_CONFIG_INITIALIZER).magic == Config().magic);
static_assert(kOldestVersion == NCCL_VERSION(2, 14, 0) && Config().version == kOldestVersion);

static_assert(kSame<decltype(ncclGetVersion), decltype(Functions::get_version)>);
static_assert(kSame<decltype(ncclGetUniqueId), decltype(Functions::get_unique_id)>);
static_assert(kSame<decltype(ncclCommInitRank), decltype(Functions::init_rank)>);
static_assert(kSame<decltype(ncclCommInitRankConfig), decltype(Functions::init_rank_config)>);
static_assert(kSame<decltype(ncclCommInitAll), decltype(Functions::init_all)>);
static_assert(kSame<decltype(ncclCommAbort), decltype(Functions::abort)>);
static_assert(kSame<decltype(ncclCommDestroy), decltype(Functions::destroy)>);
static_assert(kSame<decltype(ncclCommGetAsyncError), decltype(Functions::get_async_error)>);
static_assert(kSame<decltype(ncclAllReduce), decltype(Functions::all_reduce)>);
static_assert(kSame<decltype(ncclGetErrorString), decltype(Functions::get_error_string)>);
static_assert(kSame<decltype(ncclGetLastError), decltype(Functions::get_last_error)>);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1)
static_assert(kSame<decltype(ncclCommSplit), decltype(Functions::split)>);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 4)
static_assert(kSame<decltype(ncclCommInitRankScalable), decltype(Functions::init_rank_scalable)>);
#endif

}  // namespace
#endif

namespace {

constexpr const char* kSystemLibrary = "libnccl.so.2";

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

Functions functions_of_loaded_library() {
  void* const handle = ::dlopen(kSystemLibrary, RTLD_LAZY | RTLD_NOLOAD);
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

Result<Functions> open_library(const std::string& file) {
  void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    return fail(ErrorCode::kUnavailable,
                cat({"NCCL is not in this process and cannot be loaded: ", reason == nullptr ? file : reason,
                     "; add its folder to LD_LIBRARY_PATH, or set SLURM_BOOTSTRAP_NCCL to the file"}));
  }
  auto found = functions_of({handle});
  if (is_nccl(found)) return found;
  (void)::dlclose(handle);
  return fail(ErrorCode::kUnavailable,
              cat({file, " has no ncclCommInitRank: it is not NCCL; set SLURM_BOOTSTRAP_NCCL to a libnccl.so.2"}));
}

Result<Functions> check_age(Functions found) {
  const bool is_whole = found.get_unique_id != nullptr && found.get_version != nullptr;
  if (is_whole && found.version >= kOldestVersion) return found;
  return fail(ErrorCode::kUnsupported,
              cat({"NCCL in ", found.path, " is ", is_whole ? version_text(found.version) : "incomplete",
                   ", and 2.14 or newer is needed; set SLURM_BOOTSTRAP_NCCL to such a libnccl.so.2"}));
}

Result<Functions> find_or_open(std::string_view preferred) {
  auto found = functions_of_loaded_library();
  if (!is_nccl(found)) found = functions_of_process();
  if (is_nccl(found)) return check_age(std::move(found));
  auto opened = open_library(preferred.empty() ? kSystemLibrary : std::string(preferred));
  return opened ? check_age(std::move(*opened)) : opened;
}

}  // namespace

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
