// The round in which the ranks of a step agree on a communicator and get its unique ids.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/nccl/communicator.h"

namespace bootstrap {

// What this rank brings to the round.
struct IdRequest {
  std::string call;         // what is made, for messages: "communicator", "unique ids"
  std::uint32_t roots = 1;  // 1 to the size of the group
  std::string gpu;          // that it will use; empty: unknown, and not compared
  std::optional<Error> refusal;
  Deadline deadline;
};

// One id for each 256 ranks where this NCCL can use several.
std::uint32_t default_roots(const Group& group, const nccl::Functions& nccl);

// The ids in order of root; none for a rank that is in no group. Every rank looks at what the ranks of its node and the
// roots of its group say, which is all that it reads. The caller wipes the ids.
Result<std::vector<nccl::UniqueId>> agree_on_ids(Exchange& exchange, const Layout& layout, const Group& group,
                                                 const nccl::Functions& nccl, IdRequest request);

}  // namespace bootstrap
