// What happens in one round, from the connection to the last value read; runs on a worker's thread, which owns it all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "comm/exchange.h"
#include "core/exchange/exchanged_values.h"
#include "core/exchange/pmix_environment.h"

namespace bootstrap {

// What a successful fence brought is there at once, but on a busy node a rank may have to wait for its turn.
inline constexpr auto kReadTime = std::chrono::seconds(5);
// How long after its deadline a round may still ask who is missing (with 2 kAnswerTime on top where the server is slow
// or silent), and then take leave of the server.
inline constexpr auto kQueryTime = std::chrono::milliseconds(1000);
inline constexpr auto kLeaveTime = std::chrono::milliseconds(800);
// After so long in a fence, or before it, a rank announces itself under a name of this round alone, for the query for
// missing ranks of others; well below kQueryTime, so that those who have just come are found, too.
inline constexpr auto kAnnounceTime = std::chrono::milliseconds(400);

// In larger steps only the ranks of the own node and one of each other node are called by name: the names of all would
// travel to every node with every round.
inline constexpr std::size_t kMaxCalledRanks = 4096;

// What a rank does in a session with its server, in a round or after it.
struct RoundTask {
  Layout layout;
  Rank rank;
  PmixServer server;
  CallTag tag;  // of the round

  // True once nothing but the server can delay the task.
  std::atomic<bool> is_connected{false};
  std::atomic<bool> has_result{false};
};

struct AllgatherTask : RoundTask {
  AllgatherTask(Layout of_step, Rank own, PmixServer of_node, CallTag of_round, Allgather wanted)
      : RoundTask{std::move(of_step), own, std::move(of_node), std::move(of_round)},
        round(std::move(wanted)),
        result(fail(ErrorCode::kUnavailable, "the call did not run")) {}

  // What was exchanged may be unique ids: no copy of ours stays in memory that is used again.
  ~AllgatherTask();
  AllgatherTask(const AllgatherTask&) = delete;
  AllgatherTask& operator=(const AllgatherTask&) = delete;

  Allgather round;

  // Written by the worker before has_result, and not touched after: taking leave of the server may take longer.
  Result<AllgatherResult> result;
};

void run_allgather(AllgatherTask& job);

}  // namespace bootstrap
