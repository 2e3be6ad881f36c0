// Whether a process belongs to the step that its environment names, by what the kernel says of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "preload/rank_detection.h"

namespace bootstrap {

// For a detected of a first process alone: it opens files, 3 for a process that slurmstepd started itself. False also
// for what a launcher in between has started, whose business its children are, and for --pty. Allocates nothing. `proc`
// is another folder in tests.
//
// The evidence, in this order: the next slurmstepd among the ancestors, whose title names its step, or for mpirun the
// next daemon of its; the cgroup, which Slurm names after the step, where no slurmstepd is seen (a PID namespace,
// another parent, /proc with hidepid); and where that says nothing, that SLURM_TASK_PID is among the ancestors, is no
// batch script, and has a parent that is hidden. SLURM_TASK_PID alone proves nothing: slurmstepd sets it for batch
// scripts too.
bool belongs_to_step(const DetectedRank& detected, pid_t process, const char* proc = "/proc") noexcept;

}  // namespace bootstrap
