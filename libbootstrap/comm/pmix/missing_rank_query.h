// Who has not come to a round, asked of the servers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/pmix/allgather.h"
#include "comm/pmix/pmix_session.h"
#include "core/exchange/missing_ranks.h"

namespace bootstrap {

class MissingRankQuery {
 public:
  // Both must outlive it.
  MissingRankQuery(const PmixSession& session, const RoundTask& job);

  // The ranks that are not there, of those that are `wanted` (in order of rank). Takes kQueryTime, and up to
  // 2 kAnswerTime more where the server does not answer; less where all are there.
  MissingRanks find_missing(const std::vector<Wanted>& wanted);
  bool is_here(Rank rank) const { return is_here_[rank]; }  // after find_missing()

  // What went wrong, with the ranks that are not there.
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
  std::optional<Error> find_disagreement(const std::vector<Rank>& absent) const;

  const PmixSession& session_;
  const RoundTask& job_;
  const Deadline start_;
  const Deadline deadline_;
  std::vector<bool> is_here_;                      // by rank, as what follows
  std::vector<std::optional<CallTag>> elsewhere_;  // those that make another call
  ServerState server_ = ServerState::kAnswers;
  std::vector<Rank> silencers_;  // see MissingRanks
  bool are_near_asked_ = false;
};

}  // namespace bootstrap
