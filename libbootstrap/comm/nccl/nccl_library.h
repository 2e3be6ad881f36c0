// NCCL, or RCCL, without linking: the functions of one loaded copy, and our own declarations of its types.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/util/result.h"
#include "probe/deadline.h"
#include "probe/own_process.h"
#include "probe/secrets.h"

struct ncclComm;

namespace bootstrap::nccl {

// From nccl.h; the end of nccl_library.cc compares them with that header, if it is installed.
using Comm = ::ncclComm*;
using ResultCode = int;
inline constexpr ResultCode kSuccess = 0;
inline constexpr ResultCode kSystemError = 2;
inline constexpr ResultCode kRemoteError = 6;
inline constexpr ResultCode kInProgress = 7;

inline constexpr int kOldestVersion = 21400;  // older ones have no ncclCommInitRankConfig and no ncclConfig_t

struct UniqueId {
  std::array<char, 128> internal;
};

// The first members of ncclConfig_t, as of 2.14; NCCL accepts a shorter structure, by its `size` and `version`.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kOldestVersion;
  int blocking = 1;
};

// Null if the loaded copy does not export the function.
struct Functions {
  Symbols find = {};
  ResultCode (*get_version)(int* version) = find("ncclGetVersion");
  ResultCode (*get_unique_id)(UniqueId* id) = find("ncclGetUniqueId");
  ResultCode (*init_rank)(Comm* comm, int ranks, UniqueId id, int rank) = find("ncclCommInitRank");
  ResultCode (*init_rank_config)(Comm* comm, int ranks, UniqueId id, int rank,
                                 void* config) = find("ncclCommInitRankConfig");
  ResultCode (*init_rank_scalable)(Comm* comm, int ranks, int rank, int ids, UniqueId* id,
                                   void* config) = find.if_there("ncclCommInitRankScalable");
  ResultCode (*abort)(Comm comm) = find("ncclCommAbort");
  ResultCode (*get_async_error)(Comm comm, ResultCode* error) = find("ncclCommGetAsyncError");
  const char* (*get_error_string)(ResultCode code) = find.if_there("ncclGetErrorString");
  const char* (*get_last_error)(Comm comm) = find.if_there("ncclGetLastError");
  int version = 0;        // 22809 for 2.28.9; 0 when unknown
  std::string path = {};  // the file that it was loaded from
};

// "RCCL" if the process has loaded it, or would load it; else "NCCL".
std::string_view product();

// "2.28.9".
std::string version_text(int version);

// The copy that this process has loaded, else `preferred` (SLURM_BOOTSTRAP_NCCL, a file name or an absolute path), else
// libnccl.so.2 or librccl.so.1. Found once, and stays loaded. kUnavailable with the file that was tried.
Result<const Functions*> load(std::string_view preferred = {});

// The functions of one library, by its handle of dlopen(3). All are null if it is not NCCL.
Functions functions_in(void* library);

// NCCL_COMM_ID, or null. With it all ids are equal, and the first rank of a communicator starts NCCL's root there.
const char* fixed_root();
// The end of a message about a wait or a failed root: "; NCCL_COMM_ID=... is in the environment, ...", or empty.
std::string fixed_root_hint();

// "ncclCommInitRank failed: unhandled cuda error (Call to connect returned ...)".
std::string describe(const Functions& nccl, std::string_view call, ResultCode code, Comm comm);

}  // namespace bootstrap::nccl

namespace bootstrap {

inline void wipe(nccl::UniqueId& id) { ::explicit_bzero(&id, sizeof id); }
inline void wipe(std::vector<nccl::UniqueId>& ids) {
  for (auto& id : ids) wipe(id);
  ids.clear();
}

// When a rank stops waiting for its own part of a call, to have time to report to the others.
Deadline end_of_own_part(Deadline deadline);

// nccl::load(), then the first calls of CUDA or HIP with this device (-1: the current device; empty: no calls). They
// load libraries and open devices, and may block forever, so they run in another thread, and the caller's current
// device stays. kTimeout at the deadline.
Result<const nccl::Functions*> prepare_nccl(const std::string& preferred, std::optional<int> device, Deadline deadline);

}  // namespace bootstrap
