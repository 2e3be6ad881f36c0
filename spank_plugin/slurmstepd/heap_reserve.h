// Heap for user_init where the memory of slurmstepd is locked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bootstrap {

// With LaunchParameters=slurmstepd_memlock_all slurmstepd locks all its memory, also what it gets later. As the user it
// may lock no more than RLIMIT_MEMLOCK: no heap grows any more then, and Slurm ends slurmstepd at its own next
// allocation. So what user_init takes is set aside before, as root.
void take_heap_reserve();  // in init; nothing where memory is not locked, or may be without limit

// At the beginning of user_init and at its end: what it may use up, and what Slurm has left then.
void release_heap_for_us() noexcept;
void release_heap_for_slurm() noexcept;

}  // namespace bootstrap
