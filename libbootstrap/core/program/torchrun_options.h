// Whether a torchrun leaves it to others how many nodes there are and where they meet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/util/environment.h"

namespace bootstrap {

// The option among `arguments` (those behind torchrun itself) that decides about nodes, rendezvous or master, as it is
// written there; one that torchrun does not have; or such a variable PET_* of the user's. Empty: there is none. What
// stands behind the training script is the script's. `nodes`: of the step; to say as many is to say nothing new.
std::string find_torchrun_decision(std::span<const std::string> arguments, const Environment& environment,
                                   std::uint32_t nodes);

}  // namespace bootstrap
