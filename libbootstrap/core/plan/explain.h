// The plan for people: a table of 80 columns, and the same as JSON.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/plan/plan.h"
#include "core/settings/settings.h"
#include "core/step/facts.h"

namespace bootstrap {

// Lines of at most 80 characters unless a name or value is longer itself; ends with a newline.
std::string explain_text(const Facts& facts, const Settings& settings, const std::string& reason, const Plan& plan);

// One JSON object, RFC 8259, with a newline at its end.
std::string explain_json(const Facts& facts, const Settings& settings, const std::string& reason, const Plan& plan);

}  // namespace bootstrap
