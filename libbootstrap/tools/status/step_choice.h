// Which step is looked at, by what Slurm's own commands print, and the looking step that srun starts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/result.h"
#include "probe/deadline.h"
#include "tools/status/rank_state.h"

namespace bootstrap {

// The absolute paths of Slurm's commands on this host.
struct SlurmCommands {
  std::string srun;
  std::string scontrol;
  std::string squeue;
  std::string scancel;
};
Result<SlurmCommands> find_slurm_commands();

// Of this program.
std::string own_path();

// The absolute path of a program in PATH, or beside this one; empty: there is none.
std::string find_program(const std::string& name);

// What a command prints until the deadline; the error is its first line of complaint.
Result<std::string> run_command(const std::vector<std::string>& words, std::chrono::seconds limit);

// The environment of srun: without variables of Slurm, PMIx and our own, which are of another step.
std::vector<std::string> environment_for_srun(const char* const* entries);

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
  std::string job;   // empty: none was named
  std::string step;  // likewise
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

  std::string name() const { return leader + "." + step; }  // "12.0"
  std::uint64_t tasks() const { return parts.empty() ? 0 : parts.back().first_rank + parts.back().tasks; }
};

// Why this job cannot be looked at; empty: it can.
std::string refuse_job(const std::vector<JobLine>& jobs, std::string_view wanted, std::uint64_t user_id);

// Among the user's steps of all jobs, or of one: the only one of several tasks, else the only one. The error lists
// them.
Result<StepLine> choose_step(const std::vector<StepLine>& steps, const StepArgument& argument);

// The chosen step in all components of its job. `steps`: of all components.
ChosenStep join_parts(std::vector<JobLine> jobs, const std::vector<StepLine>& steps, const std::string& step);

// All of this, by asking Slurm.
Result<ChosenStep> find_step(const SlurmCommands& slurm, StepArgument argument);

// The name of the looking step, which is no step to look at.
inline constexpr const char* kLookName = "slurm-bootstrap-status";

struct LookOptions {
  bool asks_ras = false;
  std::string py_spy;  // empty: no stacks
};

StepState look_at_step(const SlurmCommands& slurm, const ChosenStep& step, const LookOptions& options,
                       Deadline deadline);

}  // namespace bootstrap
