// A thread beside an NCCL call that waits for other ranks: at the deadline it says who has not come, and nothing else.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "preload/nccl_hooks/hang_report.h"
#include "preload/nccl_hooks/hooked_step.h"

namespace bootstrap {

// Lives as long as the call. Nothing is opened in the first seconds; then the rank says over PMIx that it is here, and
// at SLURM_BOOTSTRAP_TIMEOUT the lowest of those that are here names the others. The call itself goes on in any case.
class HangWatchdog {
 public:
  HangWatchdog(const HookedStep& step, const WaitingCall& call);
  // At once before the first seconds are over; later within the two seconds that the end of a PMIx session may take.
  ~HangWatchdog();
  HangWatchdog(const HangWatchdog&) = delete;
  HangWatchdog& operator=(const HangWatchdog&) = delete;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace bootstrap
