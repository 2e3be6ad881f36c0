// Horovod's own rendezvous server as a process beside rank 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "core/util/result.h"
#include "probe/deadline.h"

namespace bootstrap {

// Starts it with the Python that starts `program`, or else with python3 of PATH. `slots`: a line for each rank, see
// _horovod_server.py. Answers with its port. The server is no child of this process, which may wait for its own
// children, and ends with it, whatever program it has become by then.
Result<std::uint16_t> start_rendezvous_server(const std::string& program, const std::string& slots, Deadline deadline);

}  // namespace bootstrap
