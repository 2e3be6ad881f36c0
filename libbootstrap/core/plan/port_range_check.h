// Whether the range of ports is large enough for all that a step computes from it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/plan/framework_variables.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

// In a smaller one further_port() would come back to ports that it has given already, and the step would be in its own
// way. The same on all nodes. `sets`: the frameworks whose variables are set.
Status check_port_range(const StepFacts& facts, const Settings& settings, const FrameworkFlags& sets);

}  // namespace bootstrap
