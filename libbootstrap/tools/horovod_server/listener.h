// Opens the socket on which Horovod's ranks will find the key-value server, before that server is started.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/util/result.h"
#include "probe/descriptor.h"

namespace bootstrap {

struct Listener {
  Descriptor socket;  // IPv4, close-on-exec, listening: a rank that is early waits in its queue
  std::uint16_t port = 0;
};

// On `address` of this host, such as "10.0.0.1"; on all of them where it is empty, is no IPv4 address, or is none of
// this host's. Listens on the first of `candidates` that nobody else has in any way: no server, no claim, no bound
// socket. Connections of an earlier server in TIME_WAIT do not count. Never blocks, opens no file, sends nothing. The
// error names the ports.
Result<Listener> open_listener(std::span<const std::uint16_t> candidates, const std::string& address = {});

}  // namespace bootstrap
