// What is simulated: a whole start, from srun to NCCL's ring, or a part of it whose ranks begin together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/util/result.h"
#include "simulation/world.h"

namespace bootstrap::simulation {

inline constexpr std::uint32_t kMaxRanks = 1'000'000;
inline constexpr std::uint32_t kMaxNodesOfOneMachine = 512;

// What can be simulated in a time that somebody would wait for, and makes sense.
Status check_scenario(const Constants& constants, const Scenario& scenario);

// The following take a scenario that was checked.

// All phases. The ring of NCCL begins when the last rank has met its neighbours. In a scenario with Gets::kAll there
// are no ids, and the time line ends with the exchange.
TimeLine simulate_start(const Constants& constants, const Scenario& scenario);

// Of ranks that have a session and begin at once, in a step whose nodes have talked before.
Seconds simulate_exchange(const Constants& constants, const Scenario& scenario);

// Check-in with the roots, of ranks that begin at once.
Seconds simulate_roots(const Constants& constants, const Scenario& scenario);

// From main() of the last rank to the ids in the last hand, over TCPStore. The server listens before all ranks come, or
// from when its own rank gets to it.
Seconds simulate_store(const Constants& constants, const Scenario& scenario, bool is_listening);

}  // namespace bootstrap::simulation
