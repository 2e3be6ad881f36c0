// Who has not come to a round, asked of the servers, in words.
// SPDX-License-Identifier: Apache-2.0
#include "comm/absence.h"

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

// A rank that is alone on its node asks one node after the other: so it knows which one the server fell silent at,
// unlike one beside which others ask the same server. An answer takes some 2 ms.
constexpr std::size_t kMaxTurns = 16;
constexpr auto kTurnTime = std::chrono::milliseconds(30);

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

void RollCall::ask_node_by_node(const std::vector<Wanted>& wanted) {
  std::map<NodeIndex, std::vector<Wanted>> of_node;
  for (const Wanted& one : wanted) of_node[job_.layout.place(one.rank).node].push_back(one);
  for (const auto& [node, ranks] : of_node) {
    ask(ranks, std::min(deadline_, steady_clock::now() + kTurnTime));
    if (session_.is_answered_before(deadline_)) continue;
    unanswered_ = unheard(ranks);
    return;
  }
}

std::vector<Wanted> RollCall::unheard(const std::vector<Wanted>& wanted) const {
  std::vector<Wanted> rest;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(rest),
               [this](const Wanted& one) { return !is_here_[one.rank]; });
  return rest;
}

std::vector<Rank> RollCall::missing(const std::vector<Wanted>& wanted) const {
  std::vector<Rank> ranks;
  for (const Wanted& one : unheard(wanted)) ranks.push_back(one.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
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
  if (unanswered_.empty()) {
    return cat({"missing or not heard: ", name_ranks(job_.layout, absent),
                "; slurmstepd of this node no longer answers, as when it asks a node where all ranks have ended"});
  }
  const std::string& host = job_.layout.host_of(unanswered_.front().rank);
  return cat({missing_ranks(job_.layout, missing(unanswered_)),
              ", and perhaps others; slurmstepd of this node no longer ", "answers since it asked ", host,
              ", as when all ranks there have ended"});
}

Error RollCall::explain(const std::vector<Wanted>& wanted, const Error& what) {
  const bool is_slurms = !job_.server.is_mpiruns;
  const bool is_alone = job_.layout.place(job_.rank).local_size == 1 && job_.layout.node_count() <= kMaxTurns;
  if (is_slurms && is_alone) ask_node_by_node(wanted);
  if (unanswered_.empty()) ask(unheard(wanted), deadline_);
  const auto absent = missing(wanted);
  if (auto error = disagreement(absent)) return *error;
  if (absent.empty()) {
    return {what.code,
            cat({what.message, ", though all are there now: the network is slow",
                 is_slurms ? ", or slurmstepd lost a message (look for \"Connection reject\" in the errors of "
                             "the step)"
                           : ""})};
  }
  const bool is_silent =
      !unanswered_.empty() || (is_slurms && !session_.is_answered_before(steady_clock::now() + kAnswerTime));
  return {what.code,
          cat({what.message, "; ", is_silent ? describe_silence(absent) : missing_ranks(job_.layout, absent)})};
}

}  // namespace bootstrap
