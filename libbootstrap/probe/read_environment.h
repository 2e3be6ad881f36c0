// Reads the environment of this process or of a captured file, and finds the rank of this process in its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/plan/plan.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

Environment process_environment();

// process_settings(), but without the files to load if the program has the rights of another user: its caller must not
// name code to run.
Settings trusted_settings(const Environment& environment);

// Reads a file written by `env -0` or `env`, or standard input for "-". `env` does not mark the end of a value, so
// only the first line of a value counts. Fails if the text is no environment.
Result<Environment> captured_environment(const std::string& path);

// The name of the node and its GPUs for a rank of mpirun. Empty, and nothing is read, in a rank of Slurm.
MpirunContext read_mpirun_context(const Environment& environment);

// This process as a rank of its step, from its environment alone. kMissing outside of a step; kUnsupported under mpirun
// on several nodes, where the hosts of the other ranks are unknown.
Result<OwnPlan> read_own_task(const Environment& environment);

}  // namespace bootstrap
