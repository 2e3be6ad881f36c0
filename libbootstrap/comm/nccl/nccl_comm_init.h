// One rank's call of ncclCommInitRank or a variant of it, with a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/exchange.h"
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
  // Where the ranks leave and find words about the call; null: nowhere.
  Exchange* exchange = nullptr;
  const Layout* layout = nullptr;
  std::vector<Rank> members = {};  // of the communicator
};

// Whether this copy of NCCL can do it; kUnsupported with the version that could.
Status can_init(const nccl::Functions& nccl, std::size_t ids, bool nonblocking);

// NCCL is called in a thread of its own, since its calls have no deadline: one that has not come back is left to
// itself, and ends the communicator if it comes about after all. A rank that fails leaves its sentence for the others,
// and returns. The others ask at the deadline: kTimeout names the ranks that do not answer, or the call that has not
// ended; kUnavailable is the sentence of a rank that failed. The ids are wiped. Precondition: can_init().
Result<nccl::Comm> init_communicator(InitCall call);

}  // namespace bootstrap
