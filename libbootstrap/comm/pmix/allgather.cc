// The allgather of one round over PMIx, from the connection to the last value; runs on a worker's thread.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/allgather.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/pmix/node_sockets.h"
#include "core/util/text.h"
#include "probe/secrets.h"

// The steps of one call. A name in brackets is the key of a value that a rank puts; S is 0 and 1 in turns, N is the
// number of the call.
//
//   open        a session with the server of this node
//     |
//   put         [step.S] tag and value, [node.S] the name of the socket at which the ranks of this node wait at the
//     |         end, [come.N] the tag, where libpmix remembers what it has read
//     |
//   meet        the ranks of this node, if MPI may have closed a session a moment ago: each looks for [come.N], or
//     |         [step.S], of the others
//     |
//   meet nodes  in the first call, on Slurm before 23.02: [met.D] of the node that is D nodes away
//     |
//   fence       brings [step.S] to all nodes. A rank that still waits after kAnnounceTime puts [here.N]
//     |
//   read        [node.S] of this node, [step.S] of the ranks that are wanted; the tag shows another call
//     |
//   leave       close the session; the ranks of the node wait for each other at that socket
//
// A step that fails continues with a query for the missing ranks, by [here.N], [come.N] or [step.S], and with leave.

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

class AllgatherRunner {
 public:
  AllgatherRunner(AllgatherTask& job, PmixSession& session)
      : job_(job),
        session_(session),
        here_(job.layout.place(job.rank)),
        local_ranks_(job.layout.ranks_on(here_.node)),
        // Two names in turns: the next value of a fast rank cannot replace one that a slow rank has yet to read. A
        // shared session remembers each value that it has read under its name, so it needs a new name in each round.
        slot_(std::to_string(session.is_shared() ? job.tag.sequence : job.tag.sequence % 2)) {}

  void run() {
    job_.result = exchange();
    const bool have_all_called = job_.result || job_.result.error().code == ErrorCode::kDisagreement;
    job_.has_result = true;
    leave(have_all_called);
  }

 private:
  Result<RankValues> exchange() {
    auto status = put_all();
    if (status) status = meet_before_fence();
    if (status) status = meet_nodes();
    if (status) status = fence();
    if (!status) return fail(status.error());
    return read_all();
  }

  Status put(pmix::Scope scope, const std::string& name, std::string_view bytes) const {
    auto text = encode_tagged_value(job_.tag, bytes);
    auto status = session_.client().put(scope, name, text);
    wipe(text);
    return status;
  }
  // A value of an earlier call is one that the rank has yet to replace. One of another call with this number stays.
  Values read(const std::vector<Wanted>& wanted, Deadline deadline, bool ask_others) const {
    return session_.read(wanted, deadline, ask_others, [this](Rank, const std::string& text) {
      const auto value = decode_tagged_value(text);
      return value && value->tag.id == job_.tag.id && value->tag.sequence >= job_.tag.sequence;
    });
  }
  bool has_value(const Wanted& wanted, Deadline deadline) const {
    auto values = read({wanted}, deadline, wanted.is_remote);
    if (values.front()) wipe(*values.front());
    return values.front().has_value();
  }

  // The ranks that a query for missing ranks can name.
  bool is_called(Rank rank) const {
    const Place& place = job_.layout.place(rank);
    return job_.layout.size() <= kMaxCalledRanks || place.local_rank == 0 || place.node == here_.node;
  }
  bool is_remote(Rank rank) const { return job_.layout.place(rank).node != here_.node; }
  bool has_come_key() const {
    return here_.local_size > 1 && !session_.is_shared() && session_.client().keeps_what_it_read();
  }
  std::string key(const char* kind) const { return cat({"bootstrap.", kind, ".", slot_}); }

  Status put_all() {
    const bool is_for_all = job_.round.is_for_step || job_.layout.size() <= kMaxCalledRanks || here_.local_rank == 0;
    auto status = put(is_for_all ? pmix::Scope::kStep : pmix::Scope::kNode, key("step"), job_.round.value);
    if (status && here_.local_rank == 0 && here_.local_size > 1 && !session_.is_shared()) {
      meeting_ = NodeBarrier::open();
      status = put(pmix::Scope::kNode, key("node"), meeting_.name());
    }
    if (status && has_come_key()) status = put(pmix::Scope::kNode, job_.key_of("come"), "");
    return status ? session_.client().commit() : status;
  }

  // If MPI, or other code, has closed a session a moment ago, the server may not yet have noted that for a slow rank of
  // this node, and would leave that rank out of a fence that a fast rank begins. So the ranks of the node join first.
  // The key is [come.N] where libpmix keeps all values that a session has read, so that an earlier round's value would
  // stay there; elsewhere [step.S], since with ds21 each new name costs memory. A rank asks for one other rank after
  // the other: each question that the server cannot answer costs it a message, and most ranks are there when the first
  // is. A rank that waits here for long announces itself, for ranks with an earlier deadline.
  Status meet_before_fence() {
    if (here_.local_size < 2 || !session_.may_follow_another()) return {};
    const auto soon = std::min(job_.round.deadline, steady_clock::now() + kAnnounceTime);
    for (const Rank rank : local_ranks_) {
      if (rank == job_.rank) continue;
      const std::string name = has_come_key() ? job_.key_of("come") : key("step");
      if (!is_announced_ && has_value({rank, name, false}, soon)) continue;
      announce();
      if (has_value({rank, name, false}, job_.round.deadline)) continue;
      return fail(
          explain_absence(ErrorCode::kTimeout, "not all ranks of this node joined the call before the deadline"));
    }
    return {};
  }

  // slurmstepd before 23.02 refuses another server's connection, and with it the data of a fence, while it starts its
  // tasks. A Get is safe: the server answers it when the rank has put. So the first ranks of all nodes meet before the
  // first fence, by Gets alone, as a dissemination barrier: in each turn they ask a node twice as far away, and for the
  // next turn they put a value that it has answered. With N nodes each of them asks log2(N) others.
  Status meet_nodes() {
    if (!job_.server.loses_early_messages || job_.tag.sequence > 0 || here_.local_rank != 0 || session_.is_shared()) {
      return {};
    }
    const std::size_t nodes = job_.layout.node_count();
    std::string name = key("step");
    for (std::size_t distance = 1; distance < nodes; distance *= 2) {
      const auto other = static_cast<NodeIndex>((here_.node + distance) % nodes);
      if (!has_value({job_.layout.ranks_on(other).front(), name, true}, job_.round.deadline)) {
        return fail(explain_absence(ErrorCode::kTimeout, "not all ranks joined the call before the deadline"));
      }
      if (2 * distance >= nodes) break;
      name = cat({"bootstrap.met.", std::to_string(distance)});
      auto status = put(pmix::Scope::kStep, name, "");
      if (status) status = session_.client().commit();
      if (!status) return status;
    }
    return {};
  }

  // From the third round on the server of this node has a value of each remote rank under both names, and asks no other
  // server for a newer one: a query by those names would miss whole nodes. So it uses a name of the round, which a rank
  // puts only if the round takes long, since servers keep every name until the step ends.
  void announce() {
    if (session_.is_shared() || is_announced_) return;
    is_announced_ = true;
    (void)put(pmix::Scope::kStep, job_.key_of("here"), "");
    (void)session_.client().commit();
  }

  Status fence() {
    const pmix::Answer done = session_.client().fence();
    const auto soon = std::min(job_.round.deadline, steady_clock::now() + kAnnounceTime);
    if (!done.wait_until(soon)) announce();
    if (!done.wait_until(job_.round.deadline)) {
      return fail(explain_absence(ErrorCode::kTimeout, "not all ranks joined the call before the deadline"));
    }
    if (done.code() == pmix::kSuccess) return {};
    announce();
    return fail(explain_absence(ErrorCode::kUnavailable,
                                cat({"the PMIx fence failed: ", session_.client().describe(done.code())})));
  }

  // A fence also succeeds without a rank that dies in it, and then lacks the data of its node. So each value is
  // checked.
  Result<RankValues> read_from(const std::vector<Rank>& ranks, const std::string& of_key) {
    std::vector<Wanted> wanted;
    wanted.reserve(ranks.size());
    for (const Rank rank : ranks) wanted.push_back({rank, of_key, is_remote(rank)});
    auto texts = read(wanted, std::min(job_.round.deadline, steady_clock::now() + kReadTime), false);
    RankValues values;
    values.reserve(texts.size());
    std::optional<Error> failure;
    for (std::size_t i = 0; i < texts.size() && !failure; ++i) {
      const auto value = texts[i] ? decode_tagged_value(*texts[i]) : std::nullopt;
      if (value && of_key == key("node")) meeting_name_ = value->bytes;  // also for ranks that make different calls
      if (!value) {
        failure = explain_absence(ErrorCode::kUnavailable, "a rank ended or became unreachable during the call");
      } else if (value->tag != job_.tag) {
        failure = disagreement(job_.layout, ranks[i], value->tag, job_.tag);
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

  Result<RankValues> read_all() {
    if (here_.local_size > 1 && here_.local_rank != 0 && !session_.is_shared()) {
      if (auto host = read_from({local_ranks_.front()}, key("node")); !host) return host;
    }
    return read_from(job_.round.read, key("step"));
  }

  // The keys that prove that a rank has joined: [step.S], but for a remote rank [here.N] if the server has [step.S] of
  // earlier rounds (see announce()), and for a rank of this node also [come.N] (see meet_before_fence()).
  Error explain_absence(ErrorCode code, const std::string& what) const {
    constexpr std::uint64_t kSlots = 2;
    std::vector<Wanted> wanted;
    for (Rank rank = 0; rank < job_.layout.size(); ++rank) {
      if (rank == job_.rank || !is_called(rank)) continue;
      const bool is_by_round = is_announced_ && is_remote(rank) && job_.tag.sequence >= kSlots;
      wanted.push_back({rank, is_by_round ? job_.key_of("here") : key("step"), is_remote(rank)});
      if (has_come_key() && !is_remote(rank)) wanted.push_back({rank, job_.key_of("come"), false});
    }
    return explain_missing_ranks(session_, job_, wanted, {code, what});
  }

  // All ranks of the node leave together: if a faster rank of the node has begun another fence meanwhile, perhaps
  // MPI's, the server takes the end of a connection for the loss of its rank (openpmix #3931). No rank waits for one
  // that has not called.
  void leave(bool have_all_called) const {
    const auto now = steady_clock::now();
    const auto deadline =
        have_all_called ? std::max(now + kLeaveTime, std::min(job_.round.deadline, now + kReadTime)) : now + kLeaveTime;
    bool is_noted = session_.close(deadline);
    if (session_.is_shared() || !have_all_called || here_.local_size < 2) return;
    const bool is_first = here_.local_rank == 0;
    is_noted &= is_first ? meeting_.lead(here_.local_size - 1, deadline) : NodeBarrier::wait(meeting_name_, deadline);
    if (!is_noted) sleep_for(std::chrono::milliseconds(20));  // was enough in 1,000 of 1,000 rounds without the barrier
  }

  AllgatherTask& job_;
  PmixSession& session_;
  Place here_;
  std::vector<Rank> local_ranks_;
  NodeBarrier meeting_;       // open in the node's first rank
  std::string meeting_name_;  // of its socket, in the other ranks
  std::string slot_;
  bool is_announced_ = false;
};

}  // namespace

AllgatherTask::~AllgatherTask() {
  wipe(round.value);
  if (!result) return;
  for (auto& value : *result) wipe(value);
}

void run_allgather(AllgatherTask& job) {
  auto session = PmixSession::open(job.server, job.rank);
  job.is_connected = true;
  if (session) {
    AllgatherRunner(job, *session).run();
    return;
  }
  job.result = fail(session.error());
  job.has_result = true;
}

}  // namespace bootstrap
