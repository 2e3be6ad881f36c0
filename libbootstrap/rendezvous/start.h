// Starts the server at which Horovod's ranks meet, from the process that is going to be rank 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "core/result.h"

namespace bootstrap {

struct ServerStart {
  std::string program;  // slurm-bootstrap-rendezvous
  int listener = -1;    // stays the caller's
  std::string step;     // "12.0", for who looks at the list of processes
  std::size_t ranks = 0;
  pid_t while_process = 0;  // the server ends with it
};

// The server is no child of the caller's, which may wait for its own children, and has nothing of its environment, its
// output or its other files. Comes back when it is on its way: some hundred microseconds, two forks.
// Precondition: no other thread of this process holds a lock for long (it is the caller that waits).
Status start_server(const ServerStart& start);

}  // namespace bootstrap
