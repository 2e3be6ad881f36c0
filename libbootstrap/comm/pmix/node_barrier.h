// The ranks of one node wait for each other without PMIx, to leave it together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "comm/exchange.h"
#include "probe/file_descriptor.h"

namespace bootstrap {

// A Unix socket without a file: nothing to clean up, a name that the kernel chose and nobody can take before, and gone
// with its process. Ranks in network namespaces of their own cannot use it, and are told so at once.
class NodeBarrier {
 public:
  // One rank of the node opens it and tells the others its name; empty when the system refused.
  static NodeBarrier open();
  const std::string& name() const { return name_; }

  // Waits for the `others` that join, and lets all go. False when not all had come before the deadline.
  bool lead(std::uint32_t others, Deadline deadline) const;

  // Waits until the host lets go. False at once when there is no such meeting; false at the deadline.
  static bool wait(const std::string& name, Deadline deadline);

 private:
  Descriptor descriptor_;
  std::string name_;
};

}  // namespace bootstrap
