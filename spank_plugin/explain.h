// What explain, srun -v and SLURM_BOOTSTRAP_DEBUG=1 print: of a step that is left alone in srun, of one that is set up
// in the task of rank 0, where all values are known.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/activation/activation_rules.h"
#include "core/plan/step_plan.h"
#include "spank_api.h"

namespace bootstrap {

// In srun: the decision in one line. A step that is set up and explained gets this line with its table.
void report_decision(const StepId& id, const Activation& activation, const Settings& settings);

// In the task of rank 0: the table, or one line for each decision. `notes`: of that task.
bool is_explained(const StepFacts& facts, const Settings& settings);
void explain_plan(spank_t spank, const StepFacts& facts, const Settings& settings, const StepPlan& plan,
                  const std::vector<std::string>& notes);

}  // namespace bootstrap
