// The routes of this node and the RDMA devices behind its interfaces, from files alone; whether an address is its own,
// from a bind. No packet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/settings/settings.h"
#include "core/step/step_facts.h"

namespace bootstrap {

// Adds to the facts what an interface is chosen by, where one is to be chosen. `root` stands before /proc and /sys.
void gather_network(StepFacts& facts, const Settings& settings, const std::string& root = {});

// False where the system refuses it as the own one.
bool is_own_address(std::string_view address);

}  // namespace bootstrap
