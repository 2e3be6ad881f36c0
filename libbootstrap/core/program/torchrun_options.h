// What the options of torchrun and of accelerate leave open: how many nodes there are, and where they meet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/util/environment.h"

namespace bootstrap {

struct NodesOfStep {
  std::uint32_t count = 1;
  std::vector<std::string> others = {};  // nodes of the job that are not of the step
};

// What a user decided about nodes, rendezvous and master.
struct NodeOptions {
  std::string first;     // as it is written: an option, known or not, or a variable PET_*; empty: none
  std::string remedy;    // "remove --node_rank 0 and unset PET_RDZV_ID"
  std::string conflict;  // why it hangs on the nodes of the step, without the launcher's name; empty: it may work
};

// `arguments` are those behind torchrun itself; the ones behind the training script belong to the script. A --nnodes
// with the number of nodes of the step decides nothing.
NodeOptions read_torchrun_options(std::span<const std::string> arguments, const Environment& environment,
                                  const NodesOfStep& nodes);

// Likewise, behind `accelerate launch`. Its options have no remedy: accelerate always starts its own ranks.
NodeOptions read_accelerate_options(std::span<const std::string> arguments, const NodesOfStep& nodes);

}  // namespace bootstrap
