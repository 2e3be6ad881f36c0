// One exchange over PMI-1, made by a helper process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/pmi/helper_process.h"
#include "core/step/rank_layout.h"
#include "core/step/step_id.h"

namespace bootstrap {

struct Pmi1Exchange {
  Rank rank = 0;
  std::uint32_t size = 0;
  std::string value;         // of this rank
  std::vector<Rank> wanted;  // ranks whose values are returned
};

struct Pmi1Outcome {
  std::vector<std::optional<std::string>> values;  // in the order of `wanted`; nothing for a rank that put none
  std::string trouble;                             // why there are no values; empty: there are
  bool may_have_arrived = false;                   // with trouble: srun may count this rank at the barrier
};

// In the rank. The helper gets `environment`. Errors: those of ask_helper(); after kTimeout and kMissing srun may count
// this rank at the barrier.
Result<Pmi1Outcome> exchange_in_helper(const StepId& id, const Pmi1Exchange& exchange, const Environment& environment,
                                       Deadline deadline);

// For the first line of main() of a program that may start helpers: whether this process is one.
inline bool is_helper(int count, char** arguments) {
  return count == 2 && std::string_view(arguments[1]) == kHelperArgument;
}

// The whole work of a helper process: it reads the request, makes the exchange and answers.
[[noreturn]] void serve_as_helper() noexcept;

}  // namespace bootstrap
