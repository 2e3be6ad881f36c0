// Starts the looking step with srun, reads what its processes print, and leaves nothing of it behind.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/util/result.h"
#include "probe/deadline.h"
#include "tools/status/sight.h"
#include "tools/status/step_choice.h"

namespace bootstrap {

// Slurm's commands on this host.
struct SlurmCommands {
  std::string srun;  // absolute paths
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

struct LookOptions {
  bool asks_ras = false;
  std::string py_spy;  // empty: no stacks
};

// What all nodes answered.
struct StepSight {
  std::vector<RankSight> ranks;
  std::vector<NodeSight> nodes;
  std::vector<std::string> silent_nodes;
  std::string complaint;  // of srun; empty: none
};

StepSight look_at_step(const SlurmCommands& slurm, const ChosenStep& step, const LookOptions& options,
                       Deadline deadline);

// The environment of srun: without what Slurm, PMIx or our own variables say about another step.
std::vector<std::string> environment_for_srun(const char* const* entries);

}  // namespace bootstrap
