// Our declarations of NCCL's types and functions against the nccl.h that is there: it compiles where they are the same.
// nccl_abi.py shows that it can fail.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "comm/nccl/nccl_library.h"

namespace bootstrap::nccl {
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
static_assert(ncclSuccess == kSuccess && ncclSystemError == kSystemError);
static_assert(ncclRemoteError == kRemoteError && ncclInProgress == kInProgress);

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
static_assert(kSame<decltype(ncclCommAbort), decltype(Functions::abort)>);
static_assert(kSame<decltype(ncclCommGetAsyncError), decltype(Functions::get_async_error)>);
static_assert(kSame<decltype(ncclGetErrorString), decltype(Functions::get_error_string)>);
static_assert(kSame<decltype(ncclGetLastError), decltype(Functions::get_last_error)>);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 4)
static_assert(kSame<decltype(ncclCommInitRankScalable), decltype(Functions::init_rank_scalable)>);
#endif

}  // namespace

}  // namespace bootstrap::nccl
