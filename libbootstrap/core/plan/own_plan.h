// The plan as a task itself sees it, from nothing but its environment: for the library and the command.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

struct OwnPlan {
  StepFacts facts;
  Settings settings;
  StepPlan step;
  TaskPlan task;
  std::string verdict;                   // "SET UP: ..." or "NOT SET UP: ...", for people
  bool is_set = false;                   // the plugin set these variables in this very step
  std::vector<std::string> differences;  // variables that differ from the plan, for people
};

Result<OwnPlan> read_own_plan(const Environment& environment, const MpirunContext& around = {});

// Whether the list of GPUs is still the one that we set: BOOTSTRAP_GPU counts in that one, and means nothing in a list
// that the program has made itself.
bool has_our_gpu_list(const OwnPlan& own);

}  // namespace bootstrap
