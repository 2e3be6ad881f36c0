// Before srun has read its command line: will this step be one that is set up?
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "core/environment.h"
#include "core/settings.h"

namespace bootstrap {

// True when the settings, srun's input variables or its arguments ask for GPUs or for the plugin by name. Decides
// srun's default for --kill-on-bad-exit, which srun reads before any hook that knows more, so it is right wherever that
// can be told from the words: a wrong yes would end the other tasks of a step that is none of our business, a wrong no
// would leave tasks waiting for one that was refused.
bool expects_to_apply(const Environment& environment, std::span<const std::string> arguments, const Settings& settings);

// A step of several components: "srun ... : ..." or --het-group.
bool expects_components(std::span<const std::string> arguments);

}  // namespace bootstrap
