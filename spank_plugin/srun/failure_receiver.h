// In srun: receives from the nodes which tasks failed, names the first one, and ends a step that was to end after it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/step/failure.h"
#include "core/step/step_id.h"
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

struct FailurePolicy {
  StepId id;
  std::vector<std::uint32_t> jobs;  // whose tasks these are: of a heterogeneous job, that of each component
  std::uint32_t tasks = 0;          // of the whole step
  // A step that was asked for is ended: this many seconds after its first failure, unless --bootstrap-grace=off, and at
  // once when a node could not set its tasks up. Any other is never ended.
  bool is_asked = false;
  std::optional<std::uint32_t> grace;  // nothing: off
  bool reports_for_itself = false;     // see core/step/failure.h: nothing is received
};

// In local_user_init, for a step that is set up: opens the socket, starts the thread, and puts SLURM_BOOTSTRAP_FAILURE
// into srun's environment for the nodes. Without a socket or a thread the step runs without those lines.
void start_failure_receiver(const FailurePolicy& policy);

// The last hook: reports the first failure if that is still to be done. Waits a few seconds at most for a slurmctld
// that does not answer.
int end_failure_receiver();

}  // namespace bootstrap
