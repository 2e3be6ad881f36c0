// Which step is looked at, by what Slurm's own commands print about jobs and steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/result.h"

namespace bootstrap {

// One line of `scontrol show job -d -o`.
struct JobLine {
  std::string id;      // "13"
  std::string leader;  // of a heterogeneous job: "12"; else empty
  std::uint64_t component = 0;
  std::string user;  // "alice(10001)"
  std::uint64_t user_id = 0;
  std::string state;       // "RUNNING"
  std::uint64_t gpus = 0;  // that each of its nodes has at least
};
std::vector<JobLine> parse_jobs(std::string_view text);

// One line of `squeue -s -o kStepFormat`.
inline constexpr const char* kStepFormat = "%i|%A|%N|%j";
struct StepLine {
  std::string job;   // as squeue writes it: "12", of an array "12_3"
  std::string step;  // "0", "batch"
  std::uint64_t tasks = 0;
  std::string nodes;  // "node[001-002]"
  std::string name;
};
std::vector<StepLine> parse_steps(std::string_view text);

// The argument of the command: JOBID or JOBID.STEP.
struct StepArgument {
  std::string job;
  std::string step;  // empty: none was named
};
Result<StepArgument> parse_step_argument(std::string_view text);

// The part of a step that one job has; a heterogeneous step has several.
struct StepPart {
  std::string job;
  std::uint64_t component = 0;
  std::uint64_t tasks = 0;
  std::uint64_t first_rank = 0;
  std::string nodes;
  std::uint64_t gpus = 0;
};
struct ChosenStep {
  std::string leader;  // the job that srun is given
  std::string step;
  bool is_heterogeneous = false;
  std::vector<StepPart> parts;

  std::string name() const;  // "12.0"
  std::uint64_t tasks() const;
};

// Why this job cannot be looked at; empty: it can.
std::string refuse_job(const std::vector<JobLine>& jobs, std::string_view wanted, std::uint64_t user_id);

// Among the user's steps of all jobs, or of one: the only one of several tasks, else the only one. The error lists
// them.
Result<StepLine> choose_step(const std::vector<StepLine>& steps, const StepArgument& argument);

// The chosen step in all components of its job. `steps`: of all components.
ChosenStep join_parts(const std::vector<JobLine>& jobs, const std::vector<StepLine>& steps, const std::string& step);

// The name of the looking step, which is no step to look at.
inline constexpr const char* kLookName = "slurm-bootstrap-status";

}  // namespace bootstrap
