// Who has not come to a round, asked of the servers, in words.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/round.h"
#include "comm/session.h"

namespace bootstrap {

class RollCall {
 public:
  // Both must outlive it.
  RollCall(const Session& session, const RoundJob& job);

  // What went wrong, with the ranks that are not there, of those that are `wanted` (in order of rank); takes
  // kRollCallTime, or a little longer where slurmstepd does not answer.
  Error explain(const std::vector<Wanted>& wanted, const Error& what);

 private:
  void ask(const std::vector<Wanted>& wanted, Deadline until);
  void ask_in_turns(const std::vector<Wanted>& wanted);
  bool leads_its_node() const;
  std::vector<Wanted> unheard(const std::vector<Wanted>& wanted) const;
  std::optional<Error> disagreement(const std::vector<Rank>& missing) const;
  std::string describe_silence(const std::vector<Rank>& absent) const;

  const Session& session_;
  const RoundJob& job_;
  const Deadline deadline_;
  std::vector<bool> is_here_;                       // by rank, as what follows
  std::vector<std::optional<RoundTag>> elsewhere_;  // those that make another call
  // The remote ranks that were asked last when the server of this node fell silent, as far as that is known.
  std::vector<Rank> asked_last_;
};

}  // namespace bootstrap
