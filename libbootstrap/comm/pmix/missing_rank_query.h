// Asks the servers which ranks have not joined a round.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "comm/pmix/allgather.h"
#include "comm/pmix/pmix_session.h"
#include "core/exchange/missing_ranks.h"

namespace bootstrap {

class MissingRankQuery {
 public:
  // Both must outlive it.
  MissingRankQuery(const PmixSession& session, const RoundTask& job);

  // The missing ranks of those that are `wanted` (in order of rank). Takes kQueryTime, and up to 2 kAnswerTime more if
  // the server does not answer; less if no rank is missing.
  MissingRanks find_missing(const std::vector<Wanted>& wanted);
  bool is_here(Rank rank) const { return is_here_[rank]; }  // after find_missing()

  // The error with the missing ranks, or a disagreement with one of them.
  Error explain(const std::vector<Wanted>& wanted, const Error& what);

 private:
  void ask(const std::vector<Wanted>& wanted, Deadline until);
  void ask_with_care(const std::vector<Wanted>& near, const std::vector<Wanted>& far);
  void ask_in_turns(const std::vector<Wanted>& far);
  Deadline time_to_answer() const;
  bool is_server_there();
  bool leads_its_node() const;
  std::vector<Wanted> absent_of(const std::vector<Wanted>& wanted) const;
  MissingRanks sort_out(const std::vector<Wanted>& wanted) const;

  const PmixSession& session_;
  const RoundTask& job_;
  const Deadline start_;
  const Deadline deadline_;
  std::vector<bool> is_here_;                      // by rank
  std::vector<std::optional<CallTag>> elsewhere_;  // by rank: the other call that it makes
  ServerState server_ = ServerState::kAnswers;
  std::vector<Rank> silencers_;  // see MissingRanks
  bool are_near_asked_ = false;
};

}  // namespace bootstrap
