// Whether the kernel ended a process of this step on this node for want of memory, by the step's own cgroup.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "probe/file_tree.h"

namespace bootstrap {

// In slurmstepd, which is in a cgroup of its step or of one task. False where Slurm has made no cgroup for the step, or
// none for its memory: a count of a cgroup that others are in says nothing. `root`: "/", but for tests.
bool has_lost_a_process_to_memory(const FileTree& root);

}  // namespace bootstrap
