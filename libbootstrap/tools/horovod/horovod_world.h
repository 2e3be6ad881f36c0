// Makes the ranks of a step one Horovod world over Gloo, without horovodrun: `slurm-bootstrap run --horovod`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// Sets HOROVOD_RANK and the rest in the environment of this process. All ranks of the step call it: rank 0 starts
// Horovod's own rendezvous server with the Python of `program`, as a process that ends with this one, and its address
// goes to the others over the exchange. A rank alone needs no server. Fails on all ranks alike, or at the
// deadline; the sentence is empty where rank 0 has it.
Status join_horovod_world(const Environment& environment, const std::vector<std::string>& program,
                          std::chrono::seconds timeout);

}  // namespace bootstrap
