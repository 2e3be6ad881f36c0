// TCP for a check: names into addresses and addresses into connections, each within a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "core/util/result.h"
#include "probe/descriptor.h"

namespace bootstrap {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  std::string text() const;  // "10.1.0.1"; an IPv4 address within IPv6 as IPv4
};

// Milliseconds for poll(2); 0 when it has passed.
int milliseconds_until(Deadline deadline);

// Asks the system's resolver, which knows no deadline, in a thread that is left behind when ours has passed.
// The error is the resolver's reason alone.
Result<std::vector<Address>> resolve(const std::string& name, std::uint16_t port, Deadline deadline);

// A non-blocking socket, connected; or errno, ETIMEDOUT at the deadline.
struct Connecting {
  Descriptor socket;
  int error = 0;
};
Connecting connect_to(const Address& address, Deadline deadline);

std::optional<Address> own_address(const Descriptor& socket);

// "eth0"; empty when none has it.
std::string interface_of(const Address& address);

// Listens on all addresses of both families, or of IPv4 where there is no IPv6. `like_servers`: with SO_REUSEADDR, as
// PyTorch's store, gRPC and NCCL's bootstrap do; else only on a port that nobody else has in any way. Or errno.
struct Listening {
  Descriptor socket;
  int error = 0;
};
Listening listen_on(std::uint16_t port, bool like_servers);

}  // namespace bootstrap
