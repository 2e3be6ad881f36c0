// What people read about a plan beside its table: one line for each decision, and what a user may have missed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/plan/step_plan.h"
#include "core/step/step_facts.h"

namespace bootstrap {

// For srun -v and SLURM_BOOTSTRAP_DEBUG=1: MASTER_ADDR, MASTER_PORT, and each value that was kept or replaced; then the
// notes.
std::vector<std::string> decision_lines(const StepFacts& facts, const StepPlan& plan);

// One sentence each: an uneven spread of the tasks, and GPUs of this node without a task.
std::vector<std::string> step_notes(const StepFacts& facts, const StepPlan& plan);

// A rank that is bound to cores none of which is near its GPU. Empty: it is not, or that is not known.
std::string note_far_gpu(const StepFacts& facts, Rank rank, const CpuSet& cores, const CpuSet& near);

}  // namespace bootstrap
