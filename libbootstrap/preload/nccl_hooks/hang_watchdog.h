// A thread beside an NCCL call that waits for other ranks: at the deadline it says who has not come, and nothing else.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "preload/nccl_hooks/hang_report.h"
#include "preload/nccl_hooks/hooked_step.h"

namespace bootstrap {

// Lives as long as the communicator is being made. Nothing is opened in the first seconds; then the rank says over PMIx
// that it is here, and at SLURM_BOOTSTRAP_TIMEOUT the lowest of those that are here names the others. The call itself
// goes on in any case. Calls of one process with the same topic, as one thread or one group makes for several GPUs, are
// watched as one.
class HangWatchdog {
 public:
  HangWatchdog(const HookedStep& step, const WaitingCall& call);
  // At once before the first seconds are over; later within the two seconds that the end of a PMIx session may take.
  ~HangWatchdog();
  HangWatchdog(const HangWatchdog&) = delete;
  HangWatchdog& operator=(const HangWatchdog&) = delete;

  // The call has failed: those that wait for this rank shall hear why. Comes back within two seconds.
  void fail(std::string sentence);

  // The communicator is not blocking: it is waited for while the program asks for it, and is told that it is not there.
  void note_question();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace bootstrap
