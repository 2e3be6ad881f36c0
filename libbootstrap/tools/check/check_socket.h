// TCP for a check: listens, looks up names and transfers lines, each within a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/util/result.h"
#include "probe/deadline.h"
#include "probe/files.h"

namespace bootstrap {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  std::string text() const;  // "10.1.0.1"
};

// Asks the system's resolver, which has no deadline, in a thread that goes on alone after ours. At least one address;
// the error is the reason alone.
Result<std::vector<SocketAddress>> resolve(const std::string& name, std::uint16_t port, Deadline deadline);

// A non-blocking socket, or none, and the reason in errno.
Descriptor connect_to(const SocketAddress& address, Deadline deadline);

// Listens on all addresses of both families, or of IPv4 where there is no IPv6. `like_servers`: with SO_REUSEADDR, as
// PyTorch's store, gRPC and NCCL's bootstrap do; else only on a port that no other socket has.
Descriptor listen_on(std::uint16_t port, bool like_servers);

// "eth0": that of this end of a connection; empty when none has its address.
std::string interface_of(const Descriptor& socket);

bool send_all(const Descriptor& socket, std::string_view text, Deadline deadline);

inline constexpr std::size_t kMaxLine = 20480;

// Takes the first whole line from what has arrived, without its line feed. Nothing: no line is whole yet.
std::optional<std::string> take_line(std::string& received);

// Returns the next line; `received` keeps the bytes after it. Nothing if the other side has ended the connection, the
// line is too long, or the deadline has passed.
std::optional<std::string> receive_line(const Descriptor& socket, std::string& received, Deadline deadline);

}  // namespace bootstrap
