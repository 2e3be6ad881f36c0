// The TCP connection that libpmix holds to the server of this node: kept from programs, and waited for when it closes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/exchange.h"
#include "probe/file_descriptor.h"

namespace bootstrap {

using Sockets = std::vector<ino_t>;

class ServerConnection {
 public:
  ServerConnection() = default;
  // The connections to that port which this process has: another copy of libpmix, as some builds of MPI bring one
  // along, may have its own open. Nothing where that cannot be told, as in a process without a descriptor left.
  static std::optional<Sockets> list(std::uint16_t server_port);

  // Looks for the one that was not there `before`, marks it close-on-exec (libpmix does not, and a program that
  // inherits it and ends is taken for the rank), and keeps a second descriptor of it.
  static ServerConnection find(std::uint16_t server_port, const Sockets& before);

  // The server has ended it; false where none was found.
  bool is_lost() const;

  // After libpmix has closed its end: comes back once the server has closed its own, so that it has taken note. False
  // when that was not seen before the deadline.
  bool wait_closed(Deadline deadline) const;

 private:
  explicit ServerConnection(int descriptor) : descriptor_(descriptor) {}

  Descriptor descriptor_;
};

}  // namespace bootstrap
