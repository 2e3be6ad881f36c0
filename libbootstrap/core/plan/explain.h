// What people read about a plan: a table of 80 columns, JSON, one line for each decision, and notes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/hardware/cpu_set.h"
#include "core/plan/plan.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"

namespace bootstrap {

// The plan of one task that explains itself, else the plans of all tasks of a node, that of rank 0 first.
using TaskPlans = std::span<const TaskPlan>;

// What explain prints beside the plan.
struct ExplainContext {
  std::string verdict = {};             // the first line: "SET UP: ..." or "NOT SET UP: ..."
  bool is_set_up = true;                // else these are the values that the step would have
  bool reserves_port = false;           // MASTER_PORT is reserved
  bool shows_all = false;               // --verbose
  std::vector<std::string> notes = {};  // sentences below the table
  std::string versions = {};            // "plugin 0.1.0, Slurm 22.05.8"; empty: not known
};

// Lines of at most 80 characters unless a name or value is longer itself; ends with a newline. With the facts of one
// task the values are that task's, else those of all ranks.
std::string explain_text(const StepFacts& facts, const Settings& settings, const StepPlan& plan, TaskPlans tasks,
                         const ExplainContext& context);

// One JSON object, RFC 8259, with a newline at its end.
std::string explain_json(const StepFacts& facts, const Settings& settings, const StepPlan& plan, const TaskPlan& task,
                         const ExplainContext& context);

// The text for a step that is set up: the table with --bootstrap=explain, else one line for each decision. The notes of
// the step come before those of the context.
std::string explain_set_up(const StepFacts& facts, const Settings& settings, const StepPlan& plan, TaskPlans tasks,
                           ExplainContext context);

// For srun -v and SLURM_BOOTSTRAP_DEBUG=1: MASTER_ADDR, MASTER_PORT, and each value that was kept or replaced; then the
// notes.
std::vector<std::string> decision_lines(const StepFacts& facts, const StepPlan& plan, const TaskPlan& task,
                                        bool reserves_port);

// One sentence each: an uneven spread of the tasks, and GPUs of this node without a task.
std::vector<std::string> step_notes(const StepFacts& facts, const StepPlan& plan);

// The note about GPUs without a task, for a step that asks and has one rank on each of several nodes. Programs that
// start a worker for each GPU mostly need RANK unset (fairseq 1855), so such a step succeeds with unused GPUs.
std::string warn_of_unused_gpus(const StepFacts& facts, const StepPlan& plan);

// A note if none of a rank's cores is near its GPU. Empty: one is, or that is not known.
std::string note_far_gpu(const StepFacts& facts, Rank rank, const CpuSet& cores, const CpuSet& near);

// A note about a rank that has GPUs and a single core. Empty: it has no GPU of its own.
std::string note_one_core(const StepFacts& facts, const StepPlan& plan, Rank rank);

}  // namespace bootstrap
