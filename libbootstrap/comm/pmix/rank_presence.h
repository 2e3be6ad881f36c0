// Words that ranks leave for each other after a round, without a fence: one that waits, and one that has failed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "comm/pmix/allgather.h"

namespace bootstrap {

struct PresenceTask : RoundTask {
  PresenceTask(Layout of_step, Rank own, PmixServer of_node, CallTag after_round, std::optional<RankWord> left,
               std::vector<Rank> others)
      : RoundTask{std::move(of_step), own, std::move(of_node), std::move(after_round)},
        word(std::move(left)),
        asked(std::move(others)) {}

  std::optional<RankWord> word;  // of this rank
  std::vector<Rank> asked;       // ascending; empty: none

  // Written by the worker before has_result, and not touched after.
  Result<RankWords> result = fail(ErrorCode::kUnavailable, "the query did not run");
};

// On a worker's thread: may block for ever. The answers are there after kQueryTime and kAnswerTime, or kAnswerTime
// later where the server does not answer.
void run_presence(PresenceTask& task);

}  // namespace bootstrap
