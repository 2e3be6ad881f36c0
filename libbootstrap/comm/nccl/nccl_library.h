// NCCL, or RCCL, without linking to it: the functions of one loaded copy, found by name, and our own declarations of
// its types.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "comm/process/secure_wipe.h"
#include "core/util/result.h"

struct ncclComm;
struct CUstream_st;  // cudaStream_t is a pointer to it

namespace bootstrap::nccl {

// The parts of nccl.h that we need. tests/unit/nccl_declarations.cc holds them against the real header where there is
// one.
using Comm = ::ncclComm*;
using ResultCode = int;
inline constexpr ResultCode kSuccess = 0;
inline constexpr ResultCode kSystemError = 2;
inline constexpr ResultCode kRemoteError = 6;
inline constexpr ResultCode kInProgress = 7;

using Stream = ::CUstream_st*;
using DataType = int;
inline constexpr DataType kFloat32 = 7;
using Operation = int;
inline constexpr Operation kSum = 0;

inline constexpr int kOldestVersion = 21400;  // older ones have no ncclCommInitRankConfig and no ncclConfig_t

struct UniqueId {
  std::array<char, 128> internal;
};

// The first members of ncclConfig_t, as of 2.14; NCCL takes a shorter structure and knows it by `size` and `version`.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kOldestVersion;
  int blocking = 1;
};

// Null where the loaded copy does not export it.
struct Functions {
  ResultCode (*get_version)(int* version) = nullptr;
  ResultCode (*get_unique_id)(UniqueId* id) = nullptr;
  ResultCode (*init_rank)(Comm* comm, int ranks, UniqueId id, int rank) = nullptr;
  ResultCode (*init_rank_config)(Comm* comm, int ranks, UniqueId id, int rank, void* config) = nullptr;
  ResultCode (*init_rank_scalable)(Comm* comm, int ranks, int rank, int ids, UniqueId* id, void* config) = nullptr;
  ResultCode (*abort)(Comm comm) = nullptr;
  ResultCode (*destroy)(Comm comm) = nullptr;
  ResultCode (*get_async_error)(Comm comm, ResultCode* error) = nullptr;
  ResultCode (*all_reduce)(const void* from, void* to, std::size_t count, DataType type, Operation operation, Comm comm,
                           Stream stream) = nullptr;
  const char* (*get_error_string)(ResultCode code) = nullptr;
  const char* (*get_last_error)(Comm comm) = nullptr;
  int version = 0;   // 22809 for 2.28.9; 0 when unknown
  std::string path;  // the file that it was loaded from
};

// "RCCL" in a process that has it loaded, or that would load it; else "NCCL".
std::string_view product();

// "2.28.9".
std::string version_text(int version);

// The copy that is in this process already, else the system's (libnccl.so.2 or librccl.so.1, or SLURM_BOOTSTRAP_NCCL
// when that is set: a file name or an absolute path). Found once; the copy stays loaded. Fails with kUnavailable and
// what was tried.
Result<const Functions*> load(std::string_view preferred = {});

// The functions of one library, by its handle of dlopen(3). All members are null where it is not NCCL.
Functions functions_in(void* library);

// NCCL_COMM_ID: NCCL starts its root at that address in the first rank of a communicator, and all ids are one. Null
// where it is not set.
const char* fixed_root();
// For the end of a message on a wait, or on a root that cannot be: "; NCCL_COMM_ID=... is in the environment, ...".
// Empty where it is not set.
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

}  // namespace bootstrap
