// Where no plugin does it: the server at which Horovod's ranks meet, started by rank 0 before `main`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/plan/step_plan.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

// slurm-bootstrap-rendezvous: beside this library, or where both were installed; empty where it is not.
std::string find_rendezvous_program();

// Precondition: this process is rank 0, and plan.served_port is set. The server ends with it.
Status serve_horovod(const StepFacts& facts, const Settings& settings, const StepPlan& plan,
                     const std::string& program);

}  // namespace bootstrap
