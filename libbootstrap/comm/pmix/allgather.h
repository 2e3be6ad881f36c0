// The tasks of a PMIx worker's thread, their times, and the allgather of one round.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "comm/exchange.h"
#include "core/exchange/exchanged_values.h"
#include "core/exchange/pmix_environment.h"

namespace bootstrap {

// The data of a successful fence is there at once, but on a busy node a rank may wait for a core.
inline constexpr auto kReadTime = std::chrono::seconds(5);
// After its deadline a round may query the missing ranks for this long, and 2 kAnswerTime more if the server is slow or
// silent, and then close its session.
inline constexpr auto kQueryTime = std::chrono::milliseconds(1000);
inline constexpr auto kLeaveTime = std::chrono::milliseconds(800);
// After this time in a fence, or before it, a rank announces itself under a name of this round, for other ranks'
// queries for missing ranks; well below kQueryTime, so that a query finds ranks that have just begun, too.
inline constexpr auto kAnnounceTime = std::chrono::milliseconds(400);

// In larger steps a query names only the ranks of its own node and one of each other node: the names of all ranks would
// travel to every node in every round.
inline constexpr std::size_t kMaxCalledRanks = 4096;

// What a rank does in one session with its server, in a round or after it.
struct RoundTask {
  Layout layout;
  Rank rank;
  PmixServer server;
  CallTag tag;  // of the round

  // True once only the server can delay the task.
  std::atomic<bool> is_connected{false};
  std::atomic<bool> has_result{false};
};

struct AllgatherTask : RoundTask {
  AllgatherTask(Layout of_step, Rank own, PmixServer of_node, CallTag of_round, Allgather wanted)
      : RoundTask{std::move(of_step), own, std::move(of_node), std::move(of_round)}, round(std::move(wanted)) {}
  ~AllgatherTask();  // wipes the values, which may be unique ids
  AllgatherTask(const AllgatherTask&) = delete;
  AllgatherTask& operator=(const AllgatherTask&) = delete;

  Allgather round;

  // The worker writes it before has_result, and not later: closing the session may take longer.
  Result<AllgatherResult> result = fail(ErrorCode::kUnavailable, "the call did not run");
};

void run_allgather(AllgatherTask& job);

}  // namespace bootstrap
