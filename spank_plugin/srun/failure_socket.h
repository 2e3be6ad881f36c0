// In srun: the UDP socket to which the nodes of one step send a line for each task that failed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/failure/failure.h"
#include "probe/files.h"

namespace bootstrap {

class FailureSocket {
 public:
  // A free port of all addresses, for this step's token alone. Closed when the host has none left.
  static FailureSocket open();

  bool is_open() const { return socket_.is_open(); }
  int descriptor() const { return socket_.get(); }
  const FailureAddress& address() const { return address_; }

  // The next line, without waiting; nothing when there is none. Never more than a few thousand that are none of ours.
  std::optional<Failure> receive() const;

 private:
  Descriptor socket_;
  FailureAddress address_;
};

}  // namespace bootstrap
