// The plan for people: a table of 80 columns, and the same as JSON.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/plan/step_plan.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"

namespace bootstrap {

// Lines of at most 80 characters unless a name or value is longer itself; ends with a newline.
std::string explain_text(const StepFacts& facts, const Settings& settings, const std::string& reason,
                         const StepPlan& plan);

// One JSON object, RFC 8259, with a newline at its end.
std::string explain_json(const StepFacts& facts, const Settings& settings, const std::string& reason,
                         const StepPlan& plan);

}  // namespace bootstrap
