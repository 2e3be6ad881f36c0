// The allgather of one round over PMIx, its times, and the query for missing ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/exchange_engine.h"
#include "comm/pmix/pmix_session.h"
#include "core/util/text.h"

namespace bootstrap {

// The data of a successful fence is there at once, but on a busy node a rank may wait for a core.
inline constexpr auto kReadTime = std::chrono::seconds(5);
// After its deadline a round may query the missing ranks for this long, and 2 kAnswerTime more if the server is slow or
// silent, and then close its session.
inline constexpr auto kQueryTime = std::chrono::milliseconds(1000);
inline constexpr auto kLeaveTime = std::chrono::milliseconds(800);
// In larger steps a query asks only for the ranks of its own node and one of each other node: if all ranks put a value
// for it, all these values would travel to every node in every round.
inline constexpr std::size_t kMaxCalledRanks = 4096;

// The value's tag is the call that a rank gave up, or after which it ended; then its helper puts it.
inline constexpr const char* kGivenUpKey = "bootstrap.given_up";
inline constexpr const char* kEndedKey = "bootstrap.ended";

// A round of a rank, in a session with its server.
struct PmixRound {
  const StepRank& self;
  const PmixServer& server;
  const PmixSession& session;
  const CallTag& tag;

  // "bootstrap.end.7": the key of a value of this round alone.
  std::string key_of(const char* kind) const { return cat({"bootstrap.", kind, ".", std::to_string(tag.sequence)}); }

  bool is_remote(Rank rank) const { return self.layout.place(rank).node != self.layout.place(self.rank).node; }
  std::vector<Wanted> wanted_of(const std::vector<Rank>& ranks, const std::string& key) const;

  // The value of any call of this step; empty if the text is from another step.
  std::optional<TaggedValue> of_step(std::string_view text) const {
    auto value = decode_tagged_value(text);
    return value && value->tag.id == tag.id ? value : std::nullopt;
  }
};

Result<RankValues> run_allgather(const PmixRound& call, const Allgather& round);

// The ranks that did not join a round, as far as a query found out. Each list is ascending, and no rank is in two.
struct MissingRanks {
  std::vector<Rank> missing;  // queried while the server answered
  std::vector<Rank>
      silencers;  // of the node that the server was asking when it stopped answering: the node has most likely ended
  std::vector<Rank> unheard;                   // of which nothing is known
  ServerState server = ServerState::kAnswers;  // at the end of the query

  bool is_empty() const { return missing.empty() && silencers.empty() && unheard.empty(); }
};

// "missing: rank 5 (node002, local rank 1)", and how sure that is if slurmstepd has ended or does not answer.
// Precondition: not is_empty().
std::string describe_missing_ranks(const Layout& layout, const MissingRanks& absence);

// Finds the missing ranks among `ranks` (ascending): those that have put no value under the key. Takes kQueryTime, and
// up to 2 kAnswerTime more if the server does not answer; less if no rank is missing.
MissingRanks find_missing_ranks(const PmixRound& call, const std::vector<Rank>& ranks, const std::string& key);

// The same as an error: with the missing ranks, or a disagreement with one of them.
Error explain_missing_ranks(const PmixRound& call, const std::vector<Rank>& ranks, const std::string& key,
                            const Error& what);

}  // namespace bootstrap
