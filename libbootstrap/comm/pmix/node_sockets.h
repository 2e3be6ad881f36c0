// Sockets on this node: a barrier of its ranks, and libpmix's connection to the server.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/exchange.h"
#include "probe/files.h"

namespace bootstrap {

// The ranks of one node wait for each other without PMIx, over a Unix socket without a file, which the kernel removes
// with its process. Ranks in other network namespaces fail at once.
class NodeBarrier {
 public:
  // One rank of the node opens it, under a name that only the ranks of this node and step use. Without effect where the
  // name is taken.
  static NodeBarrier open(const std::string& name);

  // Waits until that many others have joined, and releases them. False if fewer have joined before the deadline.
  bool lead(std::uint32_t others, Deadline deadline) const;

  // Waits for the release. False at once if there is no such barrier; false at the deadline.
  static bool wait(const std::string& name, Deadline deadline);

 private:
  Descriptor descriptor_;
};

// The TCP connection of libpmix to the server of this node.
class ServerConnection {
 public:
  // The number of connections to that port. Empty if they cannot be listed, as without a free descriptor.
  static std::optional<std::size_t> count(std::uint16_t server_port);

  // Finds the connection, keeps a second descriptor of it, and marks it close-on-exec: libpmix does not, and the server
  // would take the end of a program that inherits it for the end of the rank.
  static ServerConnection find(std::uint16_t server_port);

  // True if the server has closed it; false if none was found.
  bool is_lost() const;

  // After libpmix has closed its end: waits until the server has closed its own, and so has noted the end. False at the
  // deadline.
  bool wait_closed(Deadline deadline) const;

 private:
  Descriptor descriptor_;
};

}  // namespace bootstrap
