// In srun: whether somebody has ended the job of this step, and a signal to all of its tasks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace bootstrap {

// What slurmctld says of the job at this moment: cancelled, preempted, requeued, at its time limit, on a lost node.
// Nothing where it does not answer, which may take as long as Slurm's own MessageTimeout.
std::optional<bool> is_job_ended_by_others(std::uint32_t job);

// As `scancel --signal` of the step does. Slurm's error number where it was refused; nothing where the step has ended.
std::optional<int> signal_step(std::uint32_t job, std::uint32_t step, int signal);

}  // namespace bootstrap
