// The allgather of one round over PMIx, from the first value to the last.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/allgather.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "probe/secrets.h"

// The steps of a round are those of AllgatherRunner::run(). Ranks put these keys, each below "bootstrap.":
//   step.N  tag and value of call number N; it also shows the ranks of the node that this rank has joined
//   met.D   in the first call, on Slurm before 23.02: the node that is D nodes away has answered
// No key is put twice: with hash a session keeps what it has read, and ds21 does not find a third value of another
// size. A step that fails continues with a query for the missing ranks, by step.N.

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

class AllgatherRunner {
 public:
  AllgatherRunner(const PmixRound& call, const Allgather& round)
      : call_(call),
        round_(round),
        session_(call.session),
        layout_(call.self.layout),
        here_(layout_.place(call.self.rank)),
        key_(call.key_of("step")) {}

  Result<RankValues> run() {
    auto status = put_all();
    if (status) status = meet_before_fence();
    if (status) status = meet_nodes();
    if (status) status = fence();
    if (!status) return fail(status.error());
    return read_all();
  }

 private:
  Status put(pmix::Scope scope, const std::string& name, std::string_view bytes) const {
    auto text = encode_tagged_value(call_.tag, bytes);
    auto status = pmix::put(scope, name, text);
    wipe(text);
    return status;
  }
  // Refuses a value of an earlier call, which the rank will replace. A value of another call with this number is final.
  Values read(const std::vector<Wanted>& wanted, Deadline deadline, bool ask_others,
              PmixSession::Questions begun = {}) const {
    const auto accept = [this](Rank, const std::string& text) {
      const auto value = call_.of_step(text);
      return value && value->tag.sequence >= call_.tag.sequence;
    };
    return session_.read(wanted, deadline, ask_others, accept, std::move(begun));
  }
  bool has_value(const Wanted& wanted) const {
    auto values = read({wanted}, round_.deadline, wanted.is_remote);
    if (values.front()) wipe(*values.front());
    return values.front().has_value();
  }

  Status put_all() {
    const bool is_for_all = round_.is_for_step || layout_.size() <= kMaxCalledRanks || here_.local_rank == 0;
    return put(is_for_all ? pmix::Scope::kStep : pmix::Scope::kNode, key_, round_.value);
  }

  // If MPI, or other code, has closed a session a moment ago, the server may not yet have noted that for a slow rank of
  // this node, and would leave that rank out of a fence that a fast rank begins. So the ranks of the node join first. A
  // rank asks for one other rank after the other: each question that the server cannot answer costs it a message, and
  // most ranks have joined when the first one has.
  Status meet_before_fence() {
    if (here_.local_size < 2 || !session_.may_follow_another()) return {};
    for (const Rank rank : layout_.ranks_on(here_.node)) {
      if (rank == call_.self.rank || has_value({rank, key_, false})) continue;
      return fail(
          explain_absence(ErrorCode::kTimeout, "not all ranks of this node joined the call before the deadline"));
    }
    return {};
  }

  // slurmstepd before 23.02 refuses another server's connection, and with it the data of a fence, while it starts its
  // tasks. A Get is safe: the server answers it when the rank has put. So the first ranks of all nodes meet before the
  // first fence, by Gets alone, as a dissemination barrier: in each turn a rank asks a node twice as far away, and when
  // that node has answered puts a value for the next turn. With N nodes each of them asks log2(N) others.
  Status meet_nodes() {
    if (!call_.server.loses_early_messages || call_.tag.sequence > 0 || here_.local_rank != 0 || session_.is_shared()) {
      return {};
    }
    const std::size_t nodes = layout_.node_count();
    std::string name = key_;
    for (std::size_t distance = 1; distance < nodes; distance *= 2) {
      const auto other = static_cast<NodeIndex>((here_.node + distance) % nodes);
      if (!has_value({layout_.ranks_on(other).front(), name, true})) {
        return fail(explain_absence(ErrorCode::kTimeout, "not all ranks joined the call before the deadline"));
      }
      if (2 * distance >= nodes) break;
      name = cat({"bootstrap.met.", std::to_string(distance)});
      if (auto status = put(pmix::Scope::kStep, name, ""); !status) return status;
    }
    return {};
  }

  Status fence() {
    wanted_ = call_.wanted_of(round_.read, key_);
    const auto done = session_.fence(wanted_, begun_);
    if (!done->wait_until(round_.deadline)) {
      return fail(explain_absence(ErrorCode::kTimeout, "not all ranks joined the call before the deadline"));
    }
    if (done->code == pmix::kSuccess) return {};
    return fail(explain_absence(ErrorCode::kUnavailable, cat({"the PMIx fence failed: ", pmix::describe(done->code)})));
  }

  // A fence also succeeds without a rank that dies in it, and then lacks the data of its node. So each value is
  // checked.
  Result<RankValues> read_all() {
    const auto& ranks = round_.read;
    auto texts = read(wanted_, std::min(round_.deadline, steady_clock::now() + kReadTime), false, std::move(*begun_));
    RankValues values;
    values.reserve(texts.size());
    std::optional<Error> failure;
    for (std::size_t i = 0; i < texts.size() && !failure; ++i) {
      const auto value = texts[i] ? decode_tagged_value(*texts[i]) : std::nullopt;
      if (!value) {
        failure = explain_absence(ErrorCode::kUnavailable, "a rank ended or became unreachable during the call");
      } else if (value->tag != call_.tag) {
        failure = disagreement(layout_, ranks[i], value->tag, call_.tag);
      } else {
        values.emplace_back(value->bytes);
      }
    }
    for (auto& text : texts) {
      if (text) wipe(*text);
    }
    if (!failure) return values;
    for (auto& value : values) wipe(value);
    return fail(*failure);
  }

  Error explain_absence(ErrorCode code, const std::string& what) const {
    std::vector<Rank> called;
    for (Rank rank = 0; rank < layout_.size(); ++rank) {
      const bool is_called =
          layout_.size() <= kMaxCalledRanks || layout_.place(rank).local_rank == 0 || !call_.is_remote(rank);
      if (rank != call_.self.rank && is_called) called.push_back(rank);
    }
    return explain_missing_ranks(call_, called, key_, {code, what});
  }

  const PmixRound& call_;
  const Allgather& round_;
  const PmixSession& session_;
  const Layout& layout_;
  Place here_;
  std::string key_;  // of the values
  std::vector<Wanted> wanted_;
  const std::shared_ptr<PmixSession::Questions> begun_ = std::make_shared<PmixSession::Questions>();
};

}  // namespace

std::vector<Wanted> PmixRound::wanted_of(const std::vector<Rank>& ranks, const std::string& key) const {
  std::vector<Wanted> wanted;
  wanted.reserve(ranks.size());
  for (const Rank rank : ranks) wanted.push_back({rank, key, is_remote(rank)});
  return wanted;
}

Result<RankValues> run_allgather(const PmixRound& call, const Allgather& round) {
  return AllgatherRunner(call, round).run();
}

}  // namespace bootstrap
