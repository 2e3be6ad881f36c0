// One check from a rank's point of view: every rank reports to rank 0, which listens and judges beside that.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "tools/check/check_self.h"
#include "tools/check/check_table.h"

namespace bootstrap {

struct CheckSession {
  std::chrono::seconds timeout{10};  // for all ranks to answer
  // Open MPI's MPI_Init fails in a rank that had a PMIx session before (PMIx 4.2, also in another process): so none is
  // opened where a program follows.
  bool leaves_exchange = false;
  std::function<void(const CheckTable&)> show =
      nullptr;  // called on rank 0 alone, by a thread, before anybody hears the verdict
};

// True when nothing failed; the same on all ranks that rank 0 could tell. What only this rank knows, as that it cannot
// reach rank 0, it says in one sentence on standard error. Comes back within longest_check(timeout).
bool run_check(CheckSelf self, const CheckSession& session);

// Longer than any rank may take by its deadlines.
std::chrono::seconds longest_check(std::chrono::seconds timeout);

}  // namespace bootstrap
