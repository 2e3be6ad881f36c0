// The C functions of the NCCL double: weak ncclX and strong pncclX, as NCCL exports them.
// SPDX-License-Identifier: Apache-2.0
//
// Built once for each version that it stands for (NCCL_DOUBLE_VERSION), with the functions that this version has.
#include "nccl_double.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl_double_comm.h"

#define NCCL_DOUBLE_EXPORT extern "C" __attribute__((visibility("default")))
#define NCCL_DOUBLE_API(type, name, ...)                                             \
  NCCL_DOUBLE_EXPORT type p##name(__VA_ARGS__);                                      \
  NCCL_DOUBLE_EXPORT __attribute__((weak, alias("p" #name))) type name(__VA_ARGS__); \
  type p##name(__VA_ARGS__)

using nccl_double::guarded;
using nccl_double::Ring;
using nccl_double::Trouble;

namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;

// "ncclCommInitRank ranks=4 rank=1 ids=1 hash=89ab12cd": one write a line, so that processes do not mix theirs. Of ids
// there is a hash, by which a test sees that all ranks have the same: an id itself is written nowhere.
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
  std::uint32_t value = 2166136261U;
  for (const auto& id : ids) {
    for (const char byte : id.internal) value = (value ^ static_cast<unsigned char>(byte)) * 16777619U;
  }
  return std::to_string(value);
}

// A shorter structure than ours is one of an older header.
bool is_blocking(const ncclConfig_t* config) {
  if (const char* const wanted = std::getenv("NCCL_COMM_BLOCKING"); wanted != nullptr)
    return std::string(wanted) != "0";
  if (config == nullptr) return true;
  if (config->magic != kConfigMagic || config->size < sizeof *config) {
    throw Trouble{ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER"};
  }
  return config->blocking != 0;
}

// Of this thread: what ncclGroupEnd is to do.
thread_local int group_depth = 0;
thread_local std::vector<std::function<ncclResult_t()>> grouped;

// Builds it now or in a thread; *result stays null when it fails at once, and what is connected stays so.
ncclResult_t build(ncclComm_t* result, std::unique_ptr<ncclComm> comm, bool waits,
                   const std::function<std::unique_ptr<Ring>(ncclComm&)>& connect) {
  ncclComm* const made = comm.release();
  const auto code = waits ? guarded([&] { made->build(connect); })
                          : made->run_allgather([connect](ncclComm& self) { self.build(connect); });
  if (code == ncclSuccess || code == ncclInProgress) *result = made;
  return code;
}

// One whose ranks are connected.
[[maybe_unused]] ncclResult_t build_child(ncclComm_t* result, std::unique_ptr<Ring> ring, bool blocking) {
  auto made = std::make_unique<ncclComm>(ring->rank(), ring->ranks(), blocking);
  return build(
      result, std::move(made), blocking,
      [held = std::make_shared<std::unique_ptr<Ring>>(std::move(ring))](ncclComm&) { return std::move(*held); });
}

ncclResult_t init(const char* call, ncclComm_t* result, int ranks, std::vector<ncclUniqueId> ids, int rank,
                  const ncclConfig_t* config, bool has_config) {
  log(std::string(call) + " ranks=" + std::to_string(ranks) + " rank=" + std::to_string(rank) +
      " ids=" + std::to_string(ids.size()) + " hash=" + hash_of(ids));
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
  // ncclCommInitRank, which has no configuration, waits whatever NCCL_COMM_BLOCKING says.
  const auto make = [=] {
    return build(result, std::make_unique<ncclComm>(rank, ranks, blocking), blocking || !has_config,
                 [ids](ncclComm& self) { return std::make_unique<Ring>(ids, self.rank, self.ranks, self.abort); });
  };
  if (group_depth == 0) return make();
  grouped.push_back(make);
  return ncclSuccess;
}

// Makes `ordinal` current in this thread, where CUDA is there.
void use_device(int ordinal) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return;
  const auto retain = reinterpret_cast<int (*)(void**, int)>(::dlsym(driver, "cuDevicePrimaryCtxRetain"));
  const auto set = reinterpret_cast<int (*)(void*)>(::dlsym(driver, "cuCtxSetCurrent"));
  void* context = nullptr;
  if (retain == nullptr || set == nullptr || retain(&context, ordinal) != 0 || set(context) != 0) {
    throw Trouble{ncclUnhandledCudaError, "Cuda failure 'invalid device ordinal'"};
  }
}

}  // namespace

int nccl_double::version() { return NCCL_DOUBLE_VERSION; }

NCCL_DOUBLE_API(ncclResult_t, ncclGetVersion, int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = NCCL_DOUBLE_VERSION;
  return ncclSuccess;
}

NCCL_DOUBLE_API(ncclResult_t, ncclGetUniqueId, ncclUniqueId* id) {
  if (id == nullptr) return ncclInvalidArgument;
  const auto code = guarded([&] { *id = nccl_double::start_root(); });
  log("ncclGetUniqueId hash=" + hash_of({*id}));
  return code;
}

NCCL_DOUBLE_API(ncclResult_t, ncclCommInitRank, ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  return init("ncclCommInitRank", comm, nranks, {id}, rank, nullptr, false);
}

NCCL_DOUBLE_API(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                ncclConfig_t* config) {
  return init("ncclCommInitRankConfig", comm, nranks, {id}, rank, config, true);
}

#if NCCL_DOUBLE_VERSION >= 22304
NCCL_DOUBLE_API(ncclResult_t, ncclCommInitRankScalable, ncclComm_t* comm, int nranks, int rank, int ids,
                ncclUniqueId* id, ncclConfig_t* config) {
  if (ids < 1 || id == nullptr) return ncclInvalidArgument;
  return init("ncclCommInitRankScalable", comm, nranks, {id, id + ids}, rank, config, true);
}
#endif

NCCL_DOUBLE_API(ncclResult_t, ncclCommInitAll, ncclComm_t* comms, int ndev, const int* devices) {
  log("ncclCommInitAll ranks=" + std::to_string(ndev));
  if (comms == nullptr || ndev < 1) return ncclInvalidArgument;
  const auto count = static_cast<std::size_t>(ndev);
  ncclUniqueId id{};
  auto code = guarded([&] { id = nccl_double::start_root(); });
  if (code != ncclSuccess) return code;
  std::vector<ncclResult_t> codes(count, ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ndev; ++rank) {
    threads.emplace_back([=, &codes] {
      const auto place = static_cast<std::size_t>(rank);
      codes[place] = guarded([&] { use_device(devices == nullptr ? rank : devices[place]); });
      if (codes[place] != ncclSuccess) return;
      auto comm = std::make_unique<ncclComm>(rank, ndev, true);
      codes[place] = build(&comms[place], std::move(comm), true, [id](ncclComm& self) {
        return std::make_unique<Ring>(std::vector{id}, self.rank, self.ranks, self.abort);
      });
    });
  }
  for (auto& thread : threads) thread.join();
  const auto failed = std::find_if(codes.begin(), codes.end(), [](auto each) { return each != ncclSuccess; });
  return failed == codes.end() ? ncclSuccess : *failed;
}

#if NCCL_DOUBLE_VERSION >= 21803
NCCL_DOUBLE_API(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                ncclConfig_t* config) {
  log("ncclCommSplit color=" + std::to_string(color) + " key=" + std::to_string(key));
  if (comm == nullptr || newcomm == nullptr) return ncclInvalidArgument;
  *newcomm = nullptr;
  std::unique_ptr<Ring> ring;
  bool blocking = comm->blocking;
  const auto code = guarded([&] {
    if (config != nullptr) blocking = is_blocking(config);
    ring = comm->split(color, key);
  });
  return code == ncclSuccess && ring ? build_child(newcomm, std::move(ring), blocking) : code;
}
#endif

#if NCCL_DOUBLE_VERSION >= 22703
NCCL_DOUBLE_API(ncclResult_t, ncclCommShrink, ncclComm_t comm, int* left_out, int count, ncclComm_t* newcomm,
                ncclConfig_t* config, int) {
  log("ncclCommShrink left_out=" + std::to_string(count));
  if (comm == nullptr || newcomm == nullptr || left_out == nullptr || count < 1) return ncclInvalidArgument;
  *newcomm = nullptr;
  std::unique_ptr<Ring> ring;
  bool blocking = comm->blocking;
  const auto code = guarded([&] {
    if (config != nullptr) blocking = is_blocking(config);
    ring = comm->shrink({left_out, left_out + count});
  });
  return code == ncclSuccess ? build_child(newcomm, std::move(ring), blocking) : code;
}
#endif

#if NCCL_DOUBLE_VERSION >= 22902
NCCL_DOUBLE_API(ncclResult_t, ncclCommGetUniqueId, ncclComm_t comm, ncclUniqueId* id) {
  log("ncclCommGetUniqueId");
  if (comm == nullptr || id == nullptr) return ncclInvalidArgument;
  return guarded([&] { *id = comm->id_to_grow(); });
}

// Of old ranks NCCL looks at no id: the one that made it has told those that need it.
NCCL_DOUBLE_API(ncclResult_t, ncclCommGrow, ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank,
                ncclComm_t* newcomm, ncclConfig_t* config) {
  log("ncclCommGrow ranks=" + std::to_string(nranks) + " rank=" + std::to_string(rank));
  if (newcomm == nullptr || nranks <= (comm == nullptr ? 0 : comm->ranks)) return ncclInvalidArgument;
  *newcomm = nullptr;
  if (comm == nullptr ? rank < 0 || rank >= nranks || id == nullptr : rank != -1) return ncclInvalidArgument;
  bool blocking = comm == nullptr || comm->blocking;
  std::function<std::unique_ptr<Ring>(ncclComm&)> connect;
  const auto code = guarded([&] {
    if (config != nullptr) blocking = is_blocking(config);
    if (comm != nullptr) {
      connect = comm->grow(nranks);
    } else {
      connect = [root = nccl_double::handle_in(*id)](ncclComm& self) {
        return std::make_unique<Ring>(root, nccl_double::Socket::listener(), nullptr, self.rank, self.ranks,
                                      self.abort);
      };
    }
  });
  if (code != ncclSuccess) return code;
  auto made = std::make_unique<ncclComm>(comm == nullptr ? rank : comm->rank, nranks, blocking);
  return build(newcomm, std::move(made), blocking, connect);
}

NCCL_DOUBLE_API(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int flags) {
  log("ncclCommRevoke");
  if (comm == nullptr) return ncclSuccess;
  if (flags != 0 || comm->is_finalized) return ncclInvalidArgument;
  comm->revoke();
  return ncclSuccess;
}
#endif

NCCL_DOUBLE_API(ncclResult_t, ncclGroupStart) {
  ++group_depth;
  return ncclSuccess;
}

NCCL_DOUBLE_API(ncclResult_t, ncclGroupEnd) {
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  ncclResult_t code = ncclSuccess;
  for (const auto& make : std::exchange(grouped, {})) {
    const auto made = make();
    if (code == ncclSuccess) code = made;
  }
  return code;
}

NCCL_DOUBLE_API(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return std::exchange(comm->is_finalized, true) ? ncclInvalidArgument : ncclSuccess;
}

NCCL_DOUBLE_API(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
  log("ncclCommDestroy");
  delete comm;
  return ncclSuccess;
}

NCCL_DOUBLE_API(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
  log("ncclCommAbort");
  if (comm != nullptr) comm->abort = true;
  if (comm != nullptr && comm->state == ncclInProgress && !comm->is_built) (void)::usleep(900000);
  delete comm;
  return ncclSuccess;
}

NCCL_DOUBLE_API(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr || error == nullptr) return ncclInvalidArgument;
  *error = comm->state;
  return ncclSuccess;
}

NCCL_DOUBLE_API(ncclResult_t, ncclCommCount, const ncclComm_t comm, int* count) {
  if (comm == nullptr || count == nullptr) return ncclInvalidArgument;
  *count = comm->ranks;
  return ncclSuccess;
}

NCCL_DOUBLE_API(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int* rank) {
  if (comm == nullptr || rank == nullptr) return ncclInvalidArgument;
  *rank = comm->rank;
  return ncclSuccess;
}

NCCL_DOUBLE_API(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int* device) {
  if (comm == nullptr || device == nullptr) return ncclInvalidArgument;
  *device = comm->device.ordinal;
  return ncclSuccess;
}

NCCL_DOUBLE_API(ncclResult_t, ncclAllReduce, const void* from, void* to, size_t count, ncclDataType_t type,
                ncclRedOp_t operation, ncclComm_t comm, cudaStream_t) {
  if (comm == nullptr || operation != ncclSum) return ncclInvalidArgument;
  return comm->run_allgather([=](ncclComm& self) { self.all_reduce(from, to, count, type); });
}

NCCL_DOUBLE_API(const char*, ncclGetErrorString, ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

NCCL_DOUBLE_API(const char*, ncclGetLastError, ncclComm_t) { return nccl_double::last_error(); }
