// What srun asks slurmctld: the record and the layout of its step, the state of its job, a signal to its tasks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/activation/activation_rules.h"
#include "core/step/rank_layout.h"

namespace bootstrap {

// A step, by the numbers of srun's hook, which is called for the first component, or the only one.
struct StepNumbers {
  std::uint32_t job = 0;     // of that component
  std::uint32_t leader = 0;  // of the whole job, as users name it
  std::uint32_t step = 0;
  std::uint32_t tasks_in_component = 0;
  std::uint32_t tasks = 0;  // of all components

  bool is_pending() const { return step == kPendingStep; }  // it has no number, nodes and tasks yet
  StepId id() const { return {.job = leader, .step = step}; }
};

// How long srun can wait if slurmctld limits requests (SlurmctldParameters=rl_enable), and libslurm sleeps and asks
// again: half of the time after which nodes refuse the step's credential. Zero: there is no limit.
std::chrono::seconds time_where_limited();

// What the step asked for, without its tasks; one RPC. nullopt: slurmctld did not answer, or does not know the step.
// Sets `components` if the layout follows from the record; else ask_step_layout() is needed.
std::optional<SlurmctldAnswers> ask_step_record(const StepNumbers& numbers, const SrunFacts& srun,
                                                std::vector<ComponentText>& components);

// What each node of a job has of GPUs and the like: "gpu:2(IDX:0-1)". One RPC.
std::vector<std::string> ask_job_nodes(std::uint32_t job);

// The address by which Slurm reaches a node, a number or a name: its NodeAddr. Empty: slurmctld does not answer with
// one. One RPC.
std::string ask_node_address(const std::string& node);

// All components of the step in order of rank; empty when they do not add up. One RPC for a plain step, 0.7 to 1 ms.
// Only for srun: in slurmstepd Slurm's API can deadlock.
std::vector<ComponentText> ask_step_layout(const StepNumbers& numbers);

// True if slurmctld has ended the job: cancelled, preempted, requeued, at its time limit, on a lost node.
// nullopt: it does not answer, which may take as long as Slurm's own MessageTimeout.
std::optional<bool> is_job_ended_by_others(std::uint32_t job);

// As `scancel --signal` of the step does. Returns Slurm's error number; nullopt: sent, or the step has ended.
std::optional<int> signal_step(std::uint32_t job, std::uint32_t step, int signal);

}  // namespace bootstrap
