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
  Exchange* exchange = nullptr;  // for the ranks' reports about the call; null: no reports
  const Layout* layout = nullptr;
  std::vector<Rank> members = {};  // of the communicator
};

// Whether this copy of NCCL can do it; kUnsupported with the version that could.
Status can_init(const nccl::Functions& nccl, std::size_t ids, bool nonblocking);

// Calls NCCL in a thread, since its calls have no deadline. A call that has not returned in time is abandoned, and ends
// the communicator if it returns later. A rank that fails stores its report for the others, and returns. At the
// deadline the others read the reports: kTimeout names the ranks that do not answer, or the call that has not ended;
// kUnavailable is the message of a rank that failed. Wipes the ids. Precondition: can_init().
Result<nccl::Comm> init_communicator(InitCall call);

}  // namespace bootstrap
