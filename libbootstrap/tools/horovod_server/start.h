// Starts the server at which Horovod's ranks meet, from the process that is going to be rank 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "core/plan/step_plan.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"
#include "probe/descriptor.h"

namespace bootstrap {

struct ServerStart {
  std::string program;    // slurm-bootstrap-rendezvous, as people call it
  int program_file = -1;  // see open_program(); stays the caller's
  int listener = -1;      // stays the caller's
  std::string step;       // "12.0", for who looks at the list of processes
  std::size_t ranks = 0;
  pid_t while_process = 0;  // the server ends with it
  std::string hosts;        // see hosts_of_ranks(); empty: the server answers everybody
};

// The program as a descriptor. From then on it does not matter what its name means to the process that starts it, such
// as one in a container. Fails where it is not there, may not be run, or others than root can change it.
Result<Descriptor> open_program(const std::string& program);

// The names by which the hosts of the ranks are known where rank 0 listens, one a line. Empty where that cannot be
// told, since MASTER_ADDR is not made of the name of rank 0's host.
std::string hosts_of_ranks(const StepFacts& facts, const Settings& settings, const StepPlan& plan);

// The server is no child of the caller's, which may wait for its own children, and has nothing of its environment, its
// output or its other files. Comes back when it runs: a millisecond, two forks.
// Precondition: no other thread of this process holds a lock for long (it is the caller that waits).
Status start_server(const ServerStart& start);

}  // namespace bootstrap
