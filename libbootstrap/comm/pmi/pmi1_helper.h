// One exchange over PMI-1, done by a helper process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/process/helper_process.h"
#include "core/step/rank_layout.h"
#include "core/step/step_id.h"

namespace bootstrap {

struct Pmi1Exchange {
  Rank rank = 0;
  std::uint32_t size = 0;
  std::string value;         // of this rank
  std::vector<Rank> wanted;  // whose values come back
};

// What came of it.
struct Pmi1Outcome {
  std::vector<std::optional<std::string>> values;  // in the order of `wanted`; nothing of a rank that put none
  std::string trouble;                             // why there are none; empty: there are
  bool may_have_arrived = false;                   // with trouble: srun may count this rank's arrival at the barrier
};

// In the rank. `environment` becomes the helper's. Errors: those of ask_helper(); after kTimeout and kMissing srun may
// count the arrival.
Result<Pmi1Outcome> exchange_in_helper(const StepId& id, const Pmi1Exchange& exchange, const Environment& environment,
                                       Deadline deadline);

// In the helper: does what exchange_in_helper() asked for, and answers.
void serve_pmi1(const std::vector<std::string>& request, const Environment& environment);

}  // namespace bootstrap
