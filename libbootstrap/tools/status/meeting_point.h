// Where the ranks of a step meet, by their TCP connections.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "tools/status/judgement.h"

namespace bootstrap {

// Nothing where no rank listens or is connected at such a port. A port that the environment names comes first, then one
// at which the first rank listens and most others are connected.
std::optional<MeetingPoint> find_meeting_point(const std::vector<SeenRank>& ranks);

// Ranks that have a connection with another rank, but for those at this port: both ends are seen.
std::vector<bool> linked_ranks(const std::vector<SeenRank>& ranks, std::uint64_t port);

}  // namespace bootstrap
