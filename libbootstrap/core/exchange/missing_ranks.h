// The ranks that did not join a call, as far as a query found out, and the sentence about them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/step/rank_layout.h"

namespace bootstrap {

// Of this node, at the end of the query. Others than Slurm's are taken to answer.
enum class ServerState : std::uint8_t {
  kAnswers,
  kSilent,  // it runs, and does not answer
  kEnded,   // its connection is closed
};

// Each list ascending, and no rank in two of them.
struct MissingRanks {
  std::vector<Rank> missing;  // asked for while the server answered
  std::vector<Rank>
      silencers;              // of the node that it was asking when it fell silent, most likely since that one is gone
  std::vector<Rank> unheard;  // of which nothing is known
  ServerState server = ServerState::kAnswers;

  bool is_empty() const { return missing.empty() && silencers.empty() && unheard.empty(); }
};

// "missing: rank 5 (node002, local rank 1)", and where slurmstepd fell silent or ended what that is worth.
// Precondition: not is_empty().
std::string describe_missing_ranks(const Layout& layout, const MissingRanks& absence);

}  // namespace bootstrap
