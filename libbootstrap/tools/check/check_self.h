// What this process can say of itself for a check: its plan, libraries, GPUs and machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/step/step_facts.h"
#include "core/util/environment.h"
#include "core/util/result.h"
#include "tools/check/check_report.h"

namespace bootstrap {

struct CheckSelf {
  StepFacts facts;
  CheckReport report;  // all but the way to rank 0
};

// Errors: kMissing when this process is no task of a step.
Result<CheckSelf> look_at_self(const Environment& environment);

// Without a step.
CheckReport look_at_machine(const Environment& environment);

}  // namespace bootstrap
