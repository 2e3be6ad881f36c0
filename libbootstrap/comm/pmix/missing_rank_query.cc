// Asks the servers which ranks have not joined a round, and describes them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>

#include "comm/pmix/allgather.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Slurm's server stops answering when it asks a node without slurmstepd (see PmixSession::look_for_server()). So one
// rank of each node asks one node after the other, and checks each time that the server still answers, which takes less
// than a millisecond: the node after which it does not answer is the silencer. The other ranks of the node ask nothing
// meanwhile, since their question could silence the server. They wait longer than the turns take, as their deadline may
// be earlier; then the server has most answers. Nodes that get no turn in time are asked together at the end.
constexpr milliseconds kNearTime{50};
constexpr milliseconds kTurnTime{5};
constexpr milliseconds kTimeOfTurns{500};
constexpr milliseconds kTimeOfOthers{800};

class MissingRankQuery {
 public:
  // `key`: a rank that has joined has put a value under it.
  MissingRankQuery(const PmixRound& call, std::string key)
      : call_(call), layout_(call.self.layout), key_(std::move(key)), heard_(layout_.size()) {}

  MissingRanks find_missing(const std::vector<Rank>& wanted) {
    const bool from_slurm = !call_.server.from_mpirun;
    std::vector<Rank> near;
    std::vector<Rank> far;
    for (const Rank rank : wanted) (call_.is_remote(rank) ? far : near).push_back(rank);
    if (from_slurm && !far.empty()) {
      ask_with_care(near, far);
    } else {
      ask(wanted, deadline_);
      if (from_slurm && !absent_of(wanted).empty()) (void)is_server_there();
    }
    return sort_out(wanted);
  }

  std::vector<Rank> absent_of(std::vector<Rank> ranks) const {
    std::erase_if(ranks, [this](Rank rank) { return is_here(rank); });
    return ranks;
  }

  // The ranks that have put a value under this key, each with the call in its tag.
  std::map<Rank, CallTag> find_word(const char* key, const std::vector<Rank>& ranks) const {
    std::map<Rank, CallTag> found;
    if (server_ != ServerState::kAnswers) return found;
    const auto note = [&](Rank rank, const std::string& text) {
      if (const auto value = call_.of_step(text)) found[rank] = value->tag;
      return true;
    };
    (void)call_.session.read(call_.wanted_of(ranks, key), steady_clock::now() + kAnswerTime, true, note);
    return found;
  }

  // The last call of that rank that this rank has read; empty: none.
  const std::optional<CallTag>& call_of(Rank rank) const { return heard_[rank]; }

 private:
  bool is_here(Rank rank) const { return heard_[rank] == call_.tag; }

  void ask(const std::vector<Rank>& ranks, Deadline until) {
    const auto note = [this](Rank rank, const std::string& text) {
      if (const auto value = call_.of_step(text)) heard_[rank] = value->tag;
      return is_here(rank);
    };
    for (auto& answer : call_.session.read(call_.wanted_of(ranks, key_), until, true, note)) {
      if (answer) wipe(*answer);
    }
  }

  // The deadline, or kAnswerTime from now if that is later, but not more than 2 kAnswerTime after the deadline.
  Deadline time_to_answer() const {
    return std::min(std::max(deadline_, steady_clock::now() + kAnswerTime), deadline_ + 2 * kAnswerTime);
  }

  bool is_server_there() {
    if (server_ != ServerState::kAnswers) return false;
    server_ = call_.session.look_for_server(time_to_answer());
    return server_ == ServerState::kAnswers;
  }

  void ask_in_turns(const std::vector<Rank>& far) {
    std::map<NodeIndex, std::vector<Rank>> of_node;
    for (const Rank rank : far) of_node[layout_.place(rank).node].push_back(rank);
    for (const auto& [node, ranks] : of_node) {
      const auto now = steady_clock::now();
      if (now >= start_ + kTimeOfTurns) return;
      ask(ranks, now + kTurnTime);
      if (is_server_there()) continue;
      const bool has_slurmstepd = absent_of(ranks).size() < ranks.size();
      if (server_ == ServerState::kSilent && !has_slurmstepd) silencers_ = ranks;
      return;
    }
  }

  void ask_with_care(const std::vector<Rank>& near, const std::vector<Rank>& far) {
    // Another rank of this node, with an earlier deadline, may have silenced it.
    if (!is_server_there()) return;
    ask(near, steady_clock::now() + kNearTime);
    if (!is_server_there()) return;  // the server may have answered none of these
    // It answers in order: its late answers about these ranks are here now.
    ask(absent_of(near), steady_clock::now() + kTurnTime);
    are_near_asked_ = true;
    // The lowest rank that has joined on this node.
    const auto own = layout_.ranks_on(layout_.place(call_.self.rank).node);
    const auto is_before = [this](Rank rank) { return rank < call_.self.rank && is_here(rank); };
    if (std::none_of(own.begin(), own.end(), is_before)) {
      ask_in_turns(far);
    } else {
      sleep_for(start_ + kTimeOfOthers - steady_clock::now());
    }
    if (!is_server_there()) return;
    auto all = absent_of(near);
    const auto rest = absent_of(far);
    all.insert(all.end(), rest.begin(), rest.end());
    ask(all, std::min(time_to_answer(), deadline_ + kAnswerTime));  // leaves time for the next line
    (void)is_server_there();
  }

  // If a node gave no answer at all, its ranks may have joined: its server may be silent, too, or the network cut or
  // slow.
  MissingRanks sort_out(const std::vector<Rank>& wanted) const {
    MissingRanks absence{{}, silencers_, {}, server_};
    std::vector<bool> has_answered(layout_.node_count());
    has_answered[layout_.place(call_.self.rank).node] = true;
    for (Rank rank = 0; rank < heard_.size(); ++rank) {
      if (heard_[rank]) has_answered[layout_.place(rank).node] = true;
    }
    for (const Rank rank : absent_of(wanted)) {
      const bool is_near_and_asked = !call_.is_remote(rank) && are_near_asked_;
      if ((server_ == ServerState::kAnswers && has_answered[layout_.place(rank).node]) || is_near_and_asked) {
        absence.missing.push_back(rank);
      } else if (!std::binary_search(silencers_.begin(), silencers_.end(), rank)) {
        absence.unheard.push_back(rank);
      }
    }
    return absence;
  }

  const PmixRound& call_;
  const Layout& layout_;
  const std::string key_;
  const Deadline start_ = steady_clock::now();
  const Deadline deadline_ = start_ + kQueryTime;
  std::vector<std::optional<CallTag>> heard_;  // by rank: the call of its last value
  ServerState server_ = ServerState::kAnswers;
  std::vector<Rank> silencers_;  // see MissingRanks
  bool are_near_asked_ = false;
};

}  // namespace

// A server that no longer answers serves no other node either: a rank without an answer may have joined.
std::string describe_missing_ranks(const Layout& layout, const MissingRanks& absence) {
  const auto& silencers = absence.silencers;
  if (!silencers.empty()) {
    auto all = absence.missing;
    all.insert(all.end(), silencers.begin(), silencers.end());
    std::sort(all.begin(), all.end());
    return cat({missing_ranks(layout, all),
                ", and perhaps others; slurmstepd on this node stopped answering after it queried ",
                layout.host_of(silencers.front()), ", as happens when all ranks of a node have ended"});
  }
  std::string text = absence.missing.empty() ? "" : missing_ranks(layout, absence.missing);
  if (!absence.unheard.empty()) {
    text += cat({text.empty() ? "" : "; ", "missing or state unknown: ", name_ranks(layout, absence.unheard)});
  }
  if (absence.server == ServerState::kEnded) text += "; slurmstepd on this node has ended";
  if (absence.server != ServerState::kSilent) return text;
  return cat({text, "; slurmstepd on this node no longer answers",
              layout.node_count() > 1 ? ", as happens after it queries a node where all ranks have ended" : ""});
}

MissingRanks find_missing_ranks(const PmixRound& call, const std::vector<Rank>& ranks, const std::string& key) {
  return MissingRankQuery(call, key).find_missing(ranks);
}

Error explain_missing_ranks(const PmixRound& call, const std::vector<Rank>& ranks, const std::string& key,
                            const Error& what) {
  MissingRankQuery query(call, key);
  auto absence = query.find_missing(ranks);
  const auto absent = query.absent_of(ranks);
  for (const Rank rank : absent) {
    const auto& other = query.call_of(rank);
    if (other && other->sequence >= call.tag.sequence) return disagreement(call.self.layout, rank, *other, call.tag);
  }
  if (absent.empty()) {
    for (const auto& [rank, tag] : query.find_word(kEndedKey, ranks)) absence.missing.push_back(rank);
    if (!absence.is_empty()) {
      return {what.code, cat({what.message, "; ", describe_missing_ranks(call.self.layout, absence)})};
    }
    return {what.code,
            cat({what.message, ", but all have joined it by now: the network is slow",
                 call.server.from_mpirun ? ""
                                         : ", or slurmstepd lost a message (look for \"Connection reject\" in the "
                                           "errors of the step)"})};
  }
  auto text = what.message;
  for (const auto& [rank, tag] : query.find_word(kGivenUpKey, absent)) {
    text += cat({"; ", describe_rank(call.self.layout, rank), " gave up ", describe(tag), " before"});
    for (auto* const list : {&absence.missing, &absence.silencers, &absence.unheard}) std::erase(*list, rank);
  }
  if (absence.is_empty()) return {what.code, text};
  return {what.code, cat({text, "; ", describe_missing_ranks(call.self.layout, absence)})};
}

}  // namespace bootstrap
