// A communicator of all ranks of the step with more roots than the program asked for, where the user wants that.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "comm/nccl/nccl_library.h"
#include "preload/nccl_hooks/hooked_step.h"

namespace bootstrap {

// Unique ids in order of root, exchanged over PMIx; empty where the call is to go on with the program's own: one root
// is enough, it is not a communicator of all ranks in their order, or it cannot be done, which is told. Collective over
// the step, so that SLURM_BOOTSTRAP_ROOTS must be the same in all ranks, as srun makes it.
std::vector<nccl::UniqueId> multi_root_ids(const HookedStep& step, const nccl::Functions& nccl, std::uint32_t ranks,
                                           std::uint32_t rank);

}  // namespace bootstrap
