// What srun asks slurmctld: the record and the layout of its step, the state of its job, a signal to its tasks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/activation/activation_rules.h"
#include "core/step/rank_layout_text.h"

namespace bootstrap {

struct StepTasks {
  std::uint32_t in_component = 0;  // of the component that srun's hook is called for: the first, or the only one
  std::uint32_t in_step = 0;       // of all components
};

// What the step asked for, without its tasks; one RPC. Nothing where slurmctld did not answer, or does not know the
// step.
std::optional<SlurmctldAnswers> ask_step_record(std::uint32_t job, std::uint32_t step);

// What each node of a job has of GPUs and the like: "gpu:2(IDX:0-1)". One RPC.
std::vector<std::string> ask_job_nodes(std::uint32_t job);

// All components of the step in order of rank; empty when they do not add up. One RPC for a plain step, 0.7 to 1 ms.
// Only for srun: in slurmstepd Slurm's API can deadlock.
std::vector<ComponentText> ask_step_layout(const StepTasks& tasks, std::uint32_t job, std::uint32_t leader_job,
                                           std::uint32_t step);

// True if slurmctld has ended the job: cancelled, preempted, requeued, at its time limit, on a lost node.
// Nothing where it does not answer, which may take as long as Slurm's own MessageTimeout.
std::optional<bool> is_job_ended_by_others(std::uint32_t job);

// As `scancel --signal` of the step does. Slurm's error number where it was refused; nothing where the step has ended.
std::optional<int> signal_step(std::uint32_t job, std::uint32_t step, int signal);

}  // namespace bootstrap
