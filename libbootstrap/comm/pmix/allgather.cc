// What happens in one round, from the connection to the last value read; runs on a worker's thread, which owns it all.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/allgather.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/pmix/missing_rank_query.h"
#include "comm/pmix/node_barrier.h"
#include "comm/pmix/pmix_session.h"
#include "comm/process/secure_wipe.h"
#include "comm/process/sleep_for.h"
#include "core/util/text.h"

// The way of one call. A name in brackets is the key under which a rank puts something; S is 0 and 1 in turns, N is the
// number of the call.
//
//   open        a session with the server of this node
//     |
//   put         [step.S] tag and value for all ranks, [node.S] the value for this node and the name of the socket where
//     |         its ranks wait for each other at the end, [come.N] the tag, where libpmix remembers what it has read
//     |
//   meet        the ranks of this node, where MPI may have closed a session a moment ago: each looks for [come.N], or
//     |         [step.S], of the others
//     |
//   meet nodes  in the first call, on Slurm before 23.02: [met.D] of the node that is D nodes away
//     |
//   fence       brings [step.S] to all nodes. Who still waits after kAnnounceTime puts [here.N]
//     |
//   read        [step.S] of the ranks that are wanted, [node.S] of this node; what has another tag does not count
//     |
//   leave       close the session; the ranks of the node wait for each other at that socket
//
// Each step that fails goes on with a query for the missing ranks, by [here.N], [come.N] or [step.S], and with leave.

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

class AllgatherRunner {
 public:
  explicit AllgatherRunner(AllgatherTask& job)
      : job_(job), here_(job.layout.place(job.rank)), local_ranks_(job.layout.ranks_on(here_.node)) {}

  void run();

 private:
  void finish(Result<AllgatherResult> result);
  Result<AllgatherResult> exchange(const PmixSession& session);
  Status put_all(const PmixSession& session);
  Status meet_before_fence(const PmixSession& session);
  Status meet_nodes(const PmixSession& session);
  Status fence(const PmixSession& session);
  void announce(const PmixSession& session);
  Result<AllgatherResult> read_all(const PmixSession& session);
  void leave(PmixSession& session, bool has_succeeded) const;

  Error explain_absence(const PmixSession& session, ErrorCode code, const std::string& what) const;
  std::vector<Wanted> whom_to_query(const PmixSession& session) const;
  bool is_called(Rank rank) const;
  bool is_remote(Rank rank) const { return job_.layout.place(rank).node != here_.node; }
  bool is_of_this_round(std::string_view text) const;
  bool has_value(const PmixSession& session, const Wanted& wanted, Deadline deadline) const;
  Result<std::vector<std::string>> read_from(const PmixSession& session, const std::vector<Rank>& ranks,
                                             const std::string& key) const;
  std::string key(const char* kind) const { return cat({"bootstrap.", kind, ".", slot_}); }
  std::string key_of_round(const char* kind) const {
    return cat({"bootstrap.", kind, ".", std::to_string(job_.tag.sequence)});
  }
  bool has_come_key(const PmixSession& session) const {
    return here_.local_size > 1 && !session.is_shared() && session.client().keeps_what_it_read();
  }
  void name_slot(const PmixSession& session);

  AllgatherTask& job_;
  Place here_;
  std::vector<Rank> local_ranks_;
  NodeBarrier meeting_;       // of the node's first rank
  std::string meeting_name_;  // as the others were told it
  std::string slot_;
  bool is_announced_ = false;
};

bool AllgatherRunner::is_of_this_round(std::string_view text) const {
  const auto value = decode_tagged_value(text);
  return value && value->tag == job_.tag;
}

// Two names take turns: a fast rank's next value cannot replace one that a slow rank has yet to read. A shared session
// remembers every value that it has read under its name, so there each round needs a name of its own.
void AllgatherRunner::name_slot(const PmixSession& session) {
  slot_ = std::to_string(session.is_shared() ? job_.tag.sequence : job_.tag.sequence % 2);
}

bool AllgatherRunner::is_called(Rank rank) const {
  const Place& place = job_.layout.place(rank);
  return job_.layout.size() <= kMaxCalledRanks || place.local_rank == 0 || place.node == here_.node;
}

bool AllgatherRunner::has_value(const PmixSession& session, const Wanted& wanted, Deadline deadline) const {
  auto values = session.read({wanted}, deadline, wanted.is_remote,
                             [this](Rank, const std::string& text) { return is_of_this_round(text); });
  if (values.front()) wipe(*values.front());
  return values.front().has_value();
}

Status AllgatherRunner::put_all(const PmixSession& session) {
  const bool is_for_all = job_.round.shared || job_.layout.size() <= kMaxCalledRanks || here_.local_rank == 0;
  std::string shared = encode_tagged_value(job_.tag, job_.round.shared ? std::string_view(*job_.round.shared) : "");
  auto status = session.put(is_for_all ? pmix::Scope::kStep : pmix::Scope::kNode, key("step"), shared);
  wipe(shared);
  if (!status) return status;
  const bool is_host = here_.local_rank == 0 && here_.local_size > 1 && !session.is_shared();
  if (is_host) {
    meeting_ = NodeBarrier::open();
    meeting_name_ = meeting_.name();
  }
  if (is_host || !job_.round.local.empty() || job_.round.read_local) {
    const std::string local = cat({meeting_name_, "\n", job_.round.local});
    status = session.put(pmix::Scope::kNode, key("node"), encode_tagged_value(job_.tag, local));
    if (!status) return status;
  }
  if (has_come_key(session)) {
    status = session.put(pmix::Scope::kNode, key_of_round("come"), encode_tagged_value(job_.tag, ""));
    if (!status) return status;
  }
  return session.commit();
}

// Where somebody else (MPI) may have closed a session a moment ago, the server may not have taken note on behalf of a
// slow rank of this node, and would count that rank out of a fence that a fast one has begun. So all come first. Where
// libpmix keeps what a session has read, an earlier round's value would stay for as long as the session lasts, after
// the fence, too, and each round has a name of its own; elsewhere not, since with ds21 ranks lose memory with each
// name. One rank after the other: when the first has come most have, and what is not there costs the server a message.
// Who waits here for long announces itself as in a fence: others may call the roll before its own deadline.
Status AllgatherRunner::meet_before_fence(const PmixSession& session) {
  if (here_.local_size < 2 || !session.may_follow_another()) return {};
  const auto soon = std::min(job_.round.deadline, steady_clock::now() + kAnnounceTime);
  for (const Rank rank : local_ranks_) {
    if (rank == job_.rank) continue;
    const std::string name = has_come_key(session) ? key_of_round("come") : key("step");
    if (!is_announced_ && has_value(session, {rank, name, false}, soon)) continue;
    announce(session);
    if (has_value(session, {rank, name, false}, job_.round.deadline)) continue;
    return fail(explain_absence(session, ErrorCode::kTimeout,
                                "not all ranks of this node joined the call before the deadline"));
  }
  return {};
}

// A slurmstepd that loses early messages does so when it passes on a fence's data before its tasks run: the next server
// then connects to it, and it refuses. A Get it only answers, and not before its rank has put. So the first ranks of
// all nodes meet before the first fence, by Gets alone: in each turn they ask a node that is twice as far away as in
// the one before, and say for the next turn that they have heard (a dissemination barrier). So in N nodes nobody asks
// more than log2(N) others.
Status AllgatherRunner::meet_nodes(const PmixSession& session) {
  if (!job_.server.loses_early_messages || job_.tag.sequence > 0 || here_.local_rank != 0 || session.is_shared()) {
    return {};
  }
  const std::size_t nodes = job_.layout.node_count();
  std::string name = key("step");
  for (std::size_t distance = 1; distance < nodes; distance *= 2) {
    const auto other = static_cast<NodeIndex>((here_.node + distance) % nodes);
    if (!has_value(session, {job_.layout.ranks_on(other).front(), name, true}, job_.round.deadline)) {
      return fail(explain_absence(session, ErrorCode::kTimeout, "not all ranks joined the call before the deadline"));
    }
    if (2 * distance >= nodes) break;
    name = cat({"bootstrap.met.", std::to_string(distance)});
    auto status = session.put(pmix::Scope::kStep, name, encode_tagged_value(job_.tag, ""));
    if (status) status = session.commit();
    if (!status) return status;
  }
  return {};
}

// From the third round on the server of this node has a value of each remote rank under both names, and asks no other
// server for a newer one: a query by those names would miss whole nodes. A name of the round itself is asked for,
// and it is put only where a round takes long, since servers keep every name for as long as the step lasts.
void AllgatherRunner::announce(const PmixSession& session) {
  if (session.is_shared() || is_announced_) return;
  is_announced_ = true;
  (void)session.put(pmix::Scope::kStep, key_of_round("here"), encode_tagged_value(job_.tag, ""));
  (void)session.commit();
}

Status AllgatherRunner::fence(const PmixSession& session) {
  const pmix::Answer done = session.client().fence();
  const auto soon = std::min(job_.round.deadline, steady_clock::now() + kAnnounceTime);
  if (!done.wait_until(soon)) announce(session);
  if (!done.wait_until(job_.round.deadline)) {
    return fail(explain_absence(session, ErrorCode::kTimeout, "not all ranks joined the call before the deadline"));
  }
  if (done.code() == pmix::kSuccess) return {};
  announce(session);
  return fail(explain_absence(session, ErrorCode::kUnavailable,
                              cat({"the PMIx fence failed: ", session.client().describe(done.code())})));
}

// Success of a fence does not say that all took part: a rank that dies in it is left out without a word, and with it
// the data of its node. So each value is looked at.
Result<std::vector<std::string>> AllgatherRunner::read_from(const PmixSession& session, const std::vector<Rank>& ranks,
                                                            const std::string& of_key) const {
  std::vector<Wanted> wanted;
  wanted.reserve(ranks.size());
  for (const Rank rank : ranks) wanted.push_back({rank, of_key, is_remote(rank)});
  const auto until = std::min(job_.round.deadline, steady_clock::now() + kReadTime);
  auto texts =
      session.read(wanted, until, false, [this](Rank, const std::string& text) { return is_of_this_round(text); });
  std::vector<std::string> values;
  values.reserve(texts.size());
  for (auto& text : texts) {
    if (!text) {
      for (auto& value : values) wipe(value);
      return fail(
          explain_absence(session, ErrorCode::kUnavailable, "a rank ended or became unreachable during the call"));
    }
    values.emplace_back(decode_tagged_value(*text)->bytes);
    wipe(*text);
  }
  return values;
}

Result<AllgatherResult> AllgatherRunner::read_all(const PmixSession& session) {
  AllgatherResult result;
  auto shared = read_from(session, job_.round.read_shared, key("step"));
  if (!shared) return fail(shared.error());
  result.shared = std::move(*shared);
  const bool needs_meeting = here_.local_size > 1 && here_.local_rank != 0 && !session.is_shared();
  if (!job_.round.read_local && !needs_meeting) return result;
  const auto local =
      read_from(session, job_.round.read_local ? local_ranks_ : std::vector<Rank>{local_ranks_.front()}, key("node"));
  if (!local) {
    for (auto& value : result.shared) wipe(value);
    return fail(local.error());
  }
  if (needs_meeting) meeting_name_ = local->front().substr(0, local->front().find('\n'));
  if (!job_.round.read_local) return result;
  for (const auto& text : *local) result.local.push_back(text.substr(text.find('\n') + 1));
  return result;
}

Result<AllgatherResult> AllgatherRunner::exchange(const PmixSession& session) {
  auto status = put_all(session);
  if (status) status = meet_before_fence(session);
  if (status) status = meet_nodes(session);
  if (status) status = fence(session);
  if (!status) return fail(status.error());
  return read_all(session);
}

// What tells that a rank is there: after a fence that succeeded, the values that it brought. Else a remote rank is
// called by the name under which it announces itself, once its values of earlier rounds are here (see announce()), and
// one of this node also by that under which it came (see meet_before_fence()).
std::vector<Wanted> AllgatherRunner::whom_to_query(const PmixSession& session) const {
  constexpr std::uint64_t kSlots = 2;
  std::vector<Wanted> wanted;
  for (Rank rank = 0; rank < job_.layout.size(); ++rank) {
    if (rank == job_.rank || !is_called(rank)) continue;
    const bool is_by_name = is_announced_ && is_remote(rank) && job_.tag.sequence >= kSlots;
    wanted.push_back({rank, is_by_name ? key_of_round("here") : key("step"), is_remote(rank)});
    if (has_come_key(session) && !is_remote(rank)) wanted.push_back({rank, key_of_round("come"), false});
  }
  return wanted;
}

Error AllgatherRunner::explain_absence(const PmixSession& session, ErrorCode code, const std::string& what) const {
  return MissingRankQuery(session, job_).explain(whom_to_query(session), {code, what});
}

// All ranks of the node leave together: the server takes the end of a connection for the loss of its rank in whatever
// fence a faster rank of the node has begun meanwhile, be it MPI's (openpmix #3931). On failure there is nobody to wait
// for.
void AllgatherRunner::leave(PmixSession& session, bool has_succeeded) const {
  const auto now = steady_clock::now();
  const auto deadline =
      has_succeeded ? std::max(now + kLeaveTime, std::min(job_.round.deadline, now + kReadTime)) : now + kLeaveTime;
  bool is_known = session.close(deadline);
  if (session.is_shared() || !has_succeeded || here_.local_size < 2) return;
  if (here_.local_rank == 0) {
    is_known = meeting_.lead(here_.local_size - 1, deadline) && is_known;
  } else {
    is_known = NodeBarrier::wait(meeting_name_, deadline) && is_known;
  }
  if (is_known) return;
  sleep_for(std::chrono::milliseconds(20));  // were enough in all of 1,000 rounds without any meeting
}

void AllgatherRunner::finish(Result<AllgatherResult> result) {
  job_.result = std::move(result);
  job_.has_result = true;
}

void AllgatherRunner::run() {
  auto session = PmixSession::open(job_.server, job_.rank);
  job_.is_connected = true;
  if (!session) return finish(fail(session.error()));
  name_slot(*session);
  auto result = exchange(*session);
  const bool has_succeeded = result.has_value();
  finish(std::move(result));
  leave(*session, has_succeeded);
}

}  // namespace

AllgatherTask::~AllgatherTask() {
  if (round.shared) wipe(*round.shared);
  if (!result) return;
  for (auto& value : result->shared) wipe(value);
}

void run_allgather(AllgatherTask& job) { AllgatherRunner(job).run(); }

}  // namespace bootstrap
