// Reserves TCP ports so that only a server that sets SO_REUSEADDR, as rendezvous servers do, can listen on them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/master_endpoint.h"
#include "core/util/result.h"
#include "probe/files.h"

namespace bootstrap {

// For IPv6 and IPv4 if the system has both, as servers that will bind the port. `type`: SOCK_STREAM, SOCK_DGRAM.
Descriptor open_socket(int type);

// Binds to all interfaces; 0 is a port of the system's choice. False: it failed, and errno is set.
bool bind_everywhere(const Descriptor& socket, std::uint16_t port);

// A bound socket that does not listen. While it is open, bind(0) and connect() never pick the port, a second
// reservation and a bind without SO_REUSEADDR fail, and PyTorch's TCPStore, NCCL, gRPC and Python's servers can bind
// and listen. Another user's program that sets SO_REUSEADDR can, too: Linux compares users for SO_REUSEPORT only.
// Never blocks, opens no file, sends nothing. Fails with kUnavailable and the system's reason; `name` begins the
// message, such as "MASTER_PORT 25000 on node001".
Result<Descriptor> reserve_port(std::uint16_t port, const std::string& name = "the port");

// The ports of a plan that this process holds.
class StepPorts {
 public:
  PortFacts reserve(const PortPlan& plan);

  void release() { reservations_.clear(); }

 private:
  std::vector<Descriptor> reservations_;
};

}  // namespace bootstrap
