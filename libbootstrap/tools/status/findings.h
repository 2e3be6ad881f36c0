// The ranks that are out of step, in sentences that claim no more than was seen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/status/judgement.h"

namespace bootstrap {

// Never empty: the last finding is that the ranks run alike, or that none stands out.
std::vector<Finding> find_out_of_step(const std::vector<SeenRank>& ranks, const std::optional<MeetingPoint>& meeting,
                                      const std::vector<std::string>& silent_nodes);

// What else may be wrong: two ranks on one GPU, different libraries of NCCL, several ranks on one core.
std::vector<std::string> notes_on(const std::vector<SeenRank>& ranks);

}  // namespace bootstrap
