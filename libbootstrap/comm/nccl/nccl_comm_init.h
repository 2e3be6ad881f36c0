// One rank's call of ncclCommInitRank and its kin, with an end to the wait.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/exchange.h"
#include "comm/nccl/init_peers.h"
#include "comm/nccl/nccl_library.h"
#include "core/util/result.h"

namespace bootstrap {

struct InitCall {
  nccl::Functions nccl;
  std::vector<nccl::UniqueId> ids;
  int ranks = 1;
  int rank = 0;
  int device = -1;  // made current in the thread that calls NCCL; -1: none
  bool nonblocking = false;
  std::string who;  // for messages: "rank 3 (node001, local rank 3)"
  Deadline deadline;
  InitPeers* peers = nullptr;  // with whom the outcome is shared; null: with nobody
};

// Whether this copy of NCCL can do it; kUnsupported with the version that could.
Status can_init(const nccl::Functions& nccl, std::size_t ids, bool nonblocking);

// NCCL is called in a thread of its own, since its calls have no deadline: one that has not come back is left to
// itself, and ends the communicator if it comes about after all. kTimeout says which call waited for how long, or for
// which rank. Where another rank has failed, it says which and why. The ids are wiped. Precondition: can_init().
Result<nccl::Comm> init_communicator(InitCall call);

}  // namespace bootstrap
