// The C functions of the NCCL double.
// SPDX-License-Identifier: Apache-2.0
//
// Built once for each version of NCCL (NCCL_DOUBLE_VERSION), with the functions that this version has.
#include "nccl_double.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "nccl_double_parts.h"

#define NCCL_DOUBLE_API extern "C" __attribute__((visibility("default")))

using nccl_double::guarded;
using nccl_double::Trouble;

namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;

// "ncclCommInitRank ranks=4 rank=1 ids=1 hash=89ab12cd": each line is one write, so that lines of processes do not mix.
// The hash of the ids shows a test that all ranks have the same ones: an id itself is written nowhere.
void log(const std::string& line) {
  const char* const path = std::getenv("NCCL_DOUBLE_LOG");
  if (path == nullptr) return;
  const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  const auto whole =
      line + " version=" + std::to_string(NCCL_DOUBLE_VERSION) + " pid=" + std::to_string(::getpid()) + "\n";
  if (::write(file, whole.data(), whole.size()) < 0) std::abort();  // a test would miss a call
  ::close(file);
}

std::string hash_of(const std::vector<ncclUniqueId>& ids) {
  std::string bytes;
  for (const auto& id : ids) bytes.append(id.internal, sizeof id.internal);
  return std::to_string(std::hash<std::string>()(bytes));
}

// A shorter structure than ours comes from an older header.
bool is_blocking(const ncclConfig_t* config) {
  if (const char* const wanted = std::getenv("NCCL_COMM_BLOCKING"); wanted != nullptr)
    return std::string(wanted) != "0";
  if (config == nullptr) return true;
  if (config->magic != kConfigMagic || config->size < sizeof *config) {
    throw Trouble{ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER"};
  }
  return config->blocking != 0;
}

ncclResult_t init(const char* call, ncclComm_t* result, int ranks, std::vector<ncclUniqueId> ids, int rank,
                  const ncclConfig_t* config, bool has_config) {
  log(std::string(call) + " ranks=" + std::to_string(ranks) + " rank=" + std::to_string(rank) +
      " ids=" + std::to_string(ids.size()) + " hash=" + hash_of(ids) +
      " config=" + std::to_string(config == nullptr ? 0 : config->size));
  *result = nullptr;
  bool blocking = true;
  const auto checked = guarded([&] {
    if (ranks < 1 || rank < 0 || rank >= ranks) {
      throw Trouble{ncclInvalidArgument,
                    "Invalid rank requested : " + std::to_string(rank) + "/" + std::to_string(ranks)};
    }
    if (ids.empty() || ids.size() > static_cast<std::size_t>(ranks)) {
      throw Trouble{ncclInvalidArgument, "improper usage of ncclCommInitRank: nId = " + std::to_string(ids.size()) +
                                             ", nranks=" + std::to_string(ranks)};
    }
    blocking = is_blocking(config);
  });
  if (checked != ncclSuccess) return checked;
  // A communicator that fails at once is not deleted: its connections stay open.
  auto* const comm = new ncclComm(rank, ranks, blocking);
  // ncclCommInitRank, which has no configuration, waits whatever NCCL_COMM_BLOCKING is.
  const auto code =
      has_config ? comm->start([ids](ncclComm& self) { self.build(ids); }) : guarded([&] { comm->build(ids); });
  if (code == ncclSuccess || code == ncclInProgress) *result = comm;
  return code;
}

}  // namespace

int nccl_double::version() { return NCCL_DOUBLE_VERSION; }

NCCL_DOUBLE_API ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = NCCL_DOUBLE_VERSION;
  return ncclSuccess;
}

NCCL_DOUBLE_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return ncclInvalidArgument;
  const auto code = guarded([&] { *id = nccl_double::start_root(); });
  log("ncclGetUniqueId hash=" + hash_of({*id}));
  return code;
}

NCCL_DOUBLE_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  return init("ncclCommInitRank", comm, nranks, {id}, rank, nullptr, false);
}

NCCL_DOUBLE_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                                    ncclConfig_t* config) {
  return init("ncclCommInitRankConfig", comm, nranks, {id}, rank, config, true);
}

#if NCCL_DOUBLE_VERSION >= 22304
NCCL_DOUBLE_API ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int ids, ncclUniqueId* id,
                                                      ncclConfig_t* config) {
  if (ids < 1 || id == nullptr) return ncclInvalidArgument;
  return init("ncclCommInitRankScalable", comm, nranks, {id, id + ids}, rank, config, true);
}
#endif

NCCL_DOUBLE_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  log("ncclCommDestroy");
  delete comm;
  return ncclSuccess;
}

NCCL_DOUBLE_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  log("ncclCommAbort");
  if (comm != nullptr) comm->abort = true;
  if (comm != nullptr && comm->state == ncclInProgress && !comm->is_built) (void)::usleep(900000);
  delete comm;
  return ncclSuccess;
}

NCCL_DOUBLE_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr || error == nullptr) return ncclInvalidArgument;
  *error = comm->state;
  return ncclSuccess;
}

NCCL_DOUBLE_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (comm == nullptr || count == nullptr) return ncclInvalidArgument;
  *count = comm->ranks;
  return ncclSuccess;
}

NCCL_DOUBLE_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  if (comm == nullptr || rank == nullptr) return ncclInvalidArgument;
  *rank = comm->rank;
  return ncclSuccess;
}

NCCL_DOUBLE_API ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t) {
  if (comm == nullptr || operation != ncclSum || type != ncclFloat32) return ncclInvalidArgument;
  return comm->start(
      [=](const ncclComm& self) { self.all_reduce(static_cast<const float*>(from), static_cast<float*>(to), count); });
}

NCCL_DOUBLE_API const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                    "internal error - please report this issue to the NCCL developers",
                                    "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                    "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return static_cast<std::size_t>(result) < std::size(kTexts) ? kTexts[result] : "unknown result code";
}

NCCL_DOUBLE_API const char* ncclGetLastError(ncclComm_t) { return nccl_double::last_error(); }
