// The ranks of one node wait for each other without PMIx, to leave it together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "comm/exchange.h"

namespace bootstrap {

// A Unix socket without a file: nothing to clean up, a name that the kernel chose and nobody can take before, and gone
// with its process. Ranks in network namespaces of their own cannot use it, and are told so at once.
class NodeBarrier {
 public:
  NodeBarrier() = default;
  NodeBarrier(NodeBarrier&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), name_(std::move(other.name_)) {}
  NodeBarrier& operator=(NodeBarrier&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(name_, other.name_);
    return *this;
  }
  ~NodeBarrier();

  // One rank of the node opens it and tells the others its name; empty when the system refused.
  static NodeBarrier open();
  const std::string& name() const { return name_; }

  // Waits for the `others` that join, and lets all go. False when not all had come before the deadline.
  bool lead(std::uint32_t others, Deadline deadline) const;

  // Waits until the host lets go. False at once when there is no such meeting; false at the deadline.
  static bool wait(const std::string& name, Deadline deadline);

 private:
  int descriptor_ = -1;
  std::string name_;
};

}  // namespace bootstrap
