// Who has not come to a round, asked of the servers, in words.
// SPDX-License-Identifier: Apache-2.0
#include "comm/absence.h"

#include <time.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "comm/secret.h"
#include "core/roll_call.h"
#include "core/text.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

// Slurm's server falls silent when it asks a node that has no slurmstepd any more (see Session::is_answered_before()).
// So one rank of each node asks a few nodes at a time, in so many turns at most, and looks after each whether the
// server still answers, which takes it less than a millisecond: then it knows at which nodes it fell silent. The others
// of its node wait until it is through, since a question of theirs could be the one. The server then has most answers.
constexpr std::size_t kMaxTurns = 64;
constexpr auto kTurnTime = std::chrono::milliseconds(5);
constexpr auto kTimeOfTurns = std::chrono::milliseconds(500);

std::vector<Rank> ranks_of(const std::vector<Wanted>& wanted) {
  std::vector<Rank> ranks;
  ranks.reserve(wanted.size());
  for (const Wanted& one : wanted) ranks.push_back(one.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void sleep_until(Deadline time) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(time - steady_clock::now());
  const timespec pause{0, std::max<std::int64_t>(left.count(), 0)};
  (void)::nanosleep(&pause, nullptr);
}

}  // namespace

RollCall::RollCall(const Session& session, const RoundJob& job)
    : session_(session),
      job_(job),
      deadline_(steady_clock::now() + kRollCallTime),
      is_here_(job.layout.size()),
      elsewhere_(job.layout.size()) {}

// Asked of the servers: a rank that is there has put its value, and waits as we do.
void RollCall::ask(const std::vector<Wanted>& wanted, Deadline until) {
  auto answers = session_.read(wanted, until, true, [this](Rank rank, const std::string& text) {
    const auto value = decode_round_value(text);
    if (value && value->tag == job_.tag) {
      is_here_[rank] = true;
    } else if (value && value->tag.id == job_.tag.id) {
      elsewhere_[rank] = value->tag;
    }
    return is_here_[rank];
  });
  for (auto& answer : answers) {
    if (answer) wipe(*answer);
  }
}

void RollCall::ask_in_turns(const std::vector<Wanted>& wanted) {
  std::map<NodeIndex, std::vector<Wanted>> of_node;
  for (const Wanted& one : wanted) of_node[job_.layout.place(one.rank).node].push_back(one);
  const std::size_t nodes_of_turn = (of_node.size() + kMaxTurns - 1) / kMaxTurns;
  std::vector<Wanted> turn;
  std::size_t count = 0;
  // A rank of this node whose deadline was earlier may have asked before.
  if (!session_.is_answered_before(steady_clock::now() + kAnswerTime)) return;
  for (const auto& [node, questions] : of_node) {
    turn.insert(turn.end(), questions.begin(), questions.end());
    if (++count % nodes_of_turn != 0 && count != of_node.size()) continue;
    ask(turn, std::min(deadline_, steady_clock::now() + kTurnTime));
    if (!session_.is_answered_before(deadline_)) {
      asked_last_ = ranks_of(unheard(turn));
      return;
    }
    turn.clear();
  }
}

// The lowest of those that are there.
bool RollCall::leads_its_node() const {
  const auto own = job_.layout.ranks_on(job_.layout.place(job_.rank).node);
  return std::none_of(own.begin(), own.end(), [this](Rank rank) { return rank < job_.rank && is_here_[rank]; });
}

std::vector<Wanted> RollCall::unheard(const std::vector<Wanted>& wanted) const {
  std::vector<Wanted> rest;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(rest),
               [this](const Wanted& one) { return !is_here_[one.rank]; });
  return rest;
}

std::optional<Error> RollCall::disagreement(const std::vector<Rank>& missing) const {
  for (const Rank rank : missing) {
    if (!elsewhere_[rank] || elsewhere_[rank]->sequence < job_.tag.sequence) continue;
    return Error{ErrorCode::kDisagreement,
                 cat({describe_rank(job_.layout, rank), " makes ", describe(*elsewhere_[rank]), ", this one makes ",
                      describe(job_.tag), ": all ranks must make the same calls in the same order"})};
  }
  return std::nullopt;
}

// A server that has fallen silent serves no other node either, so that whoever was not heard may be there.
std::string RollCall::describe_silence(const std::vector<Rank>& absent) const {
  if (asked_last_.empty()) {
    return cat({"missing or not heard: ", name_ranks(job_.layout, absent),
                "; slurmstepd of this node no longer answers, as when it asks a node where all ranks have ended"});
  }
  return cat({missing_ranks(job_.layout, asked_last_),
              ", and perhaps others; slurmstepd of this node no longer answers "
              "since it asked there, as when all ranks of a node have ended"});
}

Error RollCall::explain(const std::vector<Wanted>& wanted, const Error& what) {
  const bool is_slurms = !job_.server.is_mpiruns;
  std::vector<Wanted> near;
  std::vector<Wanted> far;
  for (const Wanted& one : wanted) (one.is_remote ? far : near).push_back(one);
  if (is_slurms && !far.empty()) {
    const auto end_of_turns = steady_clock::now() + kTimeOfTurns;
    ask(near, steady_clock::now() + kTurnTime);
    if (leads_its_node()) {
      ask_in_turns(far);
    } else {
      sleep_until(end_of_turns);
    }
  }
  if (asked_last_.empty()) ask(unheard(wanted), deadline_);
  const auto absent = ranks_of(unheard(wanted));
  if (auto error = disagreement(absent)) return *error;
  if (absent.empty()) {
    return {what.code,
            cat({what.message, ", though all are there now: the network is slow",
                 is_slurms ? ", or slurmstepd lost a message (look for \"Connection reject\" in the errors of "
                             "the step)"
                           : ""})};
  }
  const bool is_silent =
      !asked_last_.empty() || (is_slurms && !session_.is_answered_before(steady_clock::now() + kAnswerTime));
  return {what.code,
          cat({what.message, "; ", is_silent ? describe_silence(absent) : missing_ranks(job_.layout, absent)})};
}

}  // namespace bootstrap
