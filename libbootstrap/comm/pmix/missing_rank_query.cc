// Who has not come to a round, asked of the servers.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/missing_rank_query.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "comm/process/secure_wipe.h"
#include "comm/process/sleep_for.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Slurm's server falls silent when it asks a node that has no slurmstepd any more (see PmixSession::look_for_server()).
// So one rank of each node asks a few nodes at a time, in so many turns at most, and looks after each whether the
// server still answers, which takes it less than a millisecond: then it knows at which nodes it fell silent. The others
// of its node wait until it is through, since a question of theirs could be the one; longer than its turns take, as
// their deadline may be earlier than its. The server then has most answers. Nodes to which no turn has come in time are
// asked with all that have not answered.
constexpr std::size_t kMaxTurns = 64;
constexpr milliseconds kNearTime{50};
constexpr milliseconds kTurnTime{5};
constexpr milliseconds kTimeOfTurns{500};
constexpr milliseconds kTimeOfOthers{800};

std::vector<Rank> ranks_of(const std::vector<Wanted>& wanted) {
  std::vector<Rank> ranks;
  ranks.reserve(wanted.size());
  for (const Wanted& one : wanted) ranks.push_back(one.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

MissingRankQuery::MissingRankQuery(const PmixSession& session, const RoundTask& job)
    : session_(session),
      job_(job),
      start_(steady_clock::now()),
      deadline_(start_ + kQueryTime),
      is_here_(job.layout.size()),
      elsewhere_(job.layout.size()) {}

// Asked of the servers: a rank that is there has put its value, and waits as we do.
void MissingRankQuery::ask(const std::vector<Wanted>& wanted, Deadline until) {
  auto answers = session_.read(wanted, until, true, [this](Rank rank, const std::string& text) {
    const auto value = decode_tagged_value(text);
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

// Until the deadline, or a while if that is near; but a server that is slow each time shall not be waited for much
// longer.
Deadline MissingRankQuery::time_to_answer() const {
  return std::min(std::max(deadline_, steady_clock::now() + kAnswerTime), deadline_ + 2 * kAnswerTime);
}

bool MissingRankQuery::is_server_there() {
  if (server_ != ServerState::kAnswers) return false;
  server_ = session_.look_for_server(time_to_answer());
  return server_ == ServerState::kAnswers;
}

void MissingRankQuery::ask_in_turns(const std::vector<Wanted>& far) {
  std::map<NodeIndex, std::vector<Wanted>> of_node;
  for (const Wanted& one : far) of_node[job_.layout.place(one.rank).node].push_back(one);
  std::vector<NodeIndex> nodes;
  nodes.reserve(of_node.size());
  for (const auto& [node, questions] : of_node) nodes.push_back(node);
  for (const auto& turn : deal_turns(nodes, kMaxTurns)) {
    const auto now = steady_clock::now();
    if (now >= start_ + kTimeOfTurns) return;
    std::vector<Wanted> questions;
    for (const NodeIndex node : turn) {
      questions.insert(questions.end(), of_node[node].begin(), of_node[node].end());
    }
    ask(questions, now + kTurnTime);
    if (is_server_there()) continue;
    if (server_ == ServerState::kEnded) return;
    for (const NodeIndex node : turn) {
      const auto ranks = ranks_of(of_node[node]);
      const bool has_slurmstepd = std::any_of(ranks.begin(), ranks.end(), [this](Rank rank) { return is_here_[rank]; });
      if (!has_slurmstepd) silencers_.insert(silencers_.end(), ranks.begin(), ranks.end());
    }
    std::sort(silencers_.begin(), silencers_.end());
    return;
  }
}

void MissingRankQuery::ask_with_care(const std::vector<Wanted>& near, const std::vector<Wanted>& far) {
  // A rank of this node whose deadline was earlier may have asked before.
  if (!is_server_there()) return;
  ask(near, steady_clock::now() + kNearTime);
  if (!is_server_there()) return;  // it may not have heard of these either
  // It answers in order: what it said of these after kNearTime is here now.
  ask(absent_of(near), steady_clock::now() + kTurnTime);
  are_near_asked_ = true;
  if (leads_its_node()) {
    ask_in_turns(far);
  } else {
    sleep_for(start_ + kTimeOfOthers - steady_clock::now());
  }
  if (!is_server_there()) return;
  auto all = absent_of(near);
  const auto rest = absent_of(far);
  all.insert(all.end(), rest.begin(), rest.end());
  ask(all, std::min(time_to_answer(), deadline_ + kAnswerTime));  // which leaves time for the last look
  (void)is_server_there();
}

// The lowest of those that are there.
bool MissingRankQuery::leads_its_node() const {
  const auto own = job_.layout.ranks_on(job_.layout.place(job_.rank).node);
  return std::none_of(own.begin(), own.end(), [this](Rank rank) { return rank < job_.rank && is_here_[rank]; });
}

std::vector<Wanted> MissingRankQuery::absent_of(const std::vector<Wanted>& wanted) const {
  std::vector<Wanted> rest;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(rest),
               [this](const Wanted& one) { return !is_here_[one.rank]; });
  return rest;
}

// A rank of a node that gave no answer at all may be there: the server of that node, too, falls silent when it asks a
// node that is gone, and a network may be cut or slow.
MissingRanks MissingRankQuery::sort_out(const std::vector<Wanted>& wanted) const {
  MissingRanks absence{{}, silencers_, {}, server_};
  std::vector<bool> has_answered(job_.layout.node_count());
  has_answered[job_.layout.place(job_.rank).node] = true;
  for (Rank rank = 0; rank < is_here_.size(); ++rank) {
    if (is_here_[rank] || elsewhere_[rank]) has_answered[job_.layout.place(rank).node] = true;
  }
  const auto own_node = job_.layout.place(job_.rank).node;
  for (const Rank rank : ranks_of(absent_of(wanted))) {
    const auto node = job_.layout.place(rank).node;
    const bool is_near = node == own_node;
    if ((server_ == ServerState::kAnswers && has_answered[node]) || (is_near && are_near_asked_)) {
      absence.missing.push_back(rank);
    } else if (!std::binary_search(silencers_.begin(), silencers_.end(), rank)) {
      absence.unheard.push_back(rank);
    }
  }
  return absence;
}

std::optional<Error> MissingRankQuery::find_disagreement(const std::vector<Rank>& absent) const {
  for (const Rank rank : absent) {
    if (!elsewhere_[rank] || elsewhere_[rank]->sequence < job_.tag.sequence) continue;
    return disagreement(job_.layout, rank, *elsewhere_[rank], job_.tag);
  }
  return std::nullopt;
}

MissingRanks MissingRankQuery::find_missing(const std::vector<Wanted>& wanted) {
  const bool from_slurm = !job_.server.from_mpirun;
  std::vector<Wanted> near;
  std::vector<Wanted> far;
  for (const Wanted& one : wanted) (one.is_remote ? far : near).push_back(one);
  if (from_slurm && !far.empty()) {
    ask_with_care(near, far);
  } else {
    ask(wanted, deadline_);
    if (from_slurm && !absent_of(wanted).empty()) (void)is_server_there();
  }
  return sort_out(wanted);
}

Error MissingRankQuery::explain(const std::vector<Wanted>& wanted, const Error& what) {
  const auto absence = find_missing(wanted);
  const auto absent = ranks_of(absent_of(wanted));
  if (auto error = find_disagreement(absent)) return *error;
  if (absent.empty()) {
    return {what.code,
            cat({what.message, ", but all have joined it by now: the network is slow",
                 job_.server.from_mpirun ? ""
                                         : ", or slurmstepd lost a message (look for \"Connection reject\" in the "
                                           "errors of the step)"})};
  }
  return {what.code, cat({what.message, "; ", describe_missing_ranks(job_.layout, absence)})};
}

}  // namespace bootstrap
