// The tasks of a PMIx worker's thread, their times, the allgather of one round, and the query for missing ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "comm/pmix/pmix_session.h"
#include "core/exchange/exchanged_values.h"
#include "core/exchange/missing_ranks.h"
#include "core/exchange/pmix_environment.h"
#include "core/util/text.h"

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
  RoundTask(const Layout& of_step, Rank self, const PmixServer& of_node, const CallTag& of_round)
      : layout(of_step), rank(self), server(of_node), tag(of_round) {}

  // "bootstrap.end.7": the key of a value of this round alone.
  std::string key_of(const char* kind) const { return cat({"bootstrap.", kind, ".", std::to_string(tag.sequence)}); }

  Layout layout;
  Rank rank;
  PmixServer server;
  CallTag tag;  // of the round

  // True once only the server can delay the task.
  std::atomic<bool> is_connected{false};
  std::atomic<bool> has_result{false};
};

struct AllgatherTask : RoundTask {
  using RoundTask::RoundTask;
  ~AllgatherTask();  // wipes the values, which may be unique ids
  AllgatherTask(const AllgatherTask&) = delete;
  AllgatherTask& operator=(const AllgatherTask&) = delete;

  Allgather round;

  // The worker writes it before has_result, and not later: closing the session may take longer.
  Result<RankValues> result = fail(ErrorCode::kUnavailable, "the call did not run");
};

void run_allgather(AllgatherTask& job);

// The missing ranks of those that are `wanted` (in order of rank). Takes kQueryTime, and up to 2 kAnswerTime more if
// the server does not answer; less if no rank is missing.
MissingRanks find_missing_ranks(const PmixSession& session, const RoundTask& job, const std::vector<Wanted>& wanted);

// The same as an error: with the missing ranks, or a disagreement with one of them.
Error explain_missing_ranks(const PmixSession& session, const RoundTask& job, const std::vector<Wanted>& wanted,
                            const Error& what);

}  // namespace bootstrap
