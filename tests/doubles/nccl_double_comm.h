// A communicator of the NCCL double, and what its ranks tell each other when they make it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "nccl_double.h"
#include "nccl_double_ring.h"

// The device that the calling thread has in CUDA or HIP, if one of them is in the process.
struct DeviceOfThread {
  int ordinal = 0;
  std::int64_t bus = -1;  // PCI bus id as one number, as NCCL prints it; -1: neither
};
DeviceOfThread device_of_thread();

struct ncclComm {
  ncclComm(int comm_rank, int comm_ranks, bool is_blocking)
      : rank(comm_rank), ranks(comm_ranks), blocking(is_blocking), device(device_of_thread()) {}
  ~ncclComm() {
    if (worker.joinable()) worker.join();
  }

  // Makes the ring, compares the ranks and connects them to their proxies.
  void build(const std::vector<ncclUniqueId>& ids);
  void all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type);

  // On a blocking communicator at once; else in a thread, and ncclInProgress meanwhile.
  ncclResult_t run_allgather(std::function<void(ncclComm&)> work);

  int rank;
  int ranks;
  bool blocking;
  DeviceOfThread device;
  int all_reduces = 0;  // so far
  nccl_double::AbortFlag abort{false};
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<bool> is_built{false};
  std::unique_ptr<nccl_double::Ring> ring;
  std::vector<nccl_double::Socket> proxies;  // its own, which goes on listening, and the connections of two ranks
  std::thread worker;
};

namespace nccl_double {

// Calls `work` and answers with its trouble, if it has any.
ncclResult_t guarded(const std::function<void()>& work) noexcept;
const char* last_error();

}  // namespace nccl_double
