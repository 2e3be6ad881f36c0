// Rounds and reports over the PMIx server of this node: in a session of the engine, or in one that the process has.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/exchange_engine.h"
#include "comm/pmix/allgather.h"
#include "comm/pmix/node_sockets.h"
#include "comm/pmix/pmix_library.h"
#include "core/exchange/pmix_environment.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

// A server keeps the first value of a key that it has read, so a rank that first waits and later fails puts two keys.
Status store_report(const PmixRound& call, const RankReport& own) {
  auto status = pmix::put(pmix::Scope::kStep, call.key_of("there"), encode_tagged_value(call.tag, ""));
  if (!status || own.failure.empty()) return status;
  return pmix::put(pmix::Scope::kStep, call.key_of("end"), encode_tagged_value(call.tag, write_record(own)));
}

// First queries the missing ranks, since nodes may have ended. Then reads the reports of the other ranks, some of which
// may have ended after they put "there". Returns after kQueryTime and kAnswerTime, or kAnswerTime later if the server
// does not answer.
RankReports read_reports(const PmixRound& call, std::vector<Rank> asked) {
  RankReports reports;
  std::erase(asked, call.self.rank);
  auto absence = find_missing_ranks(call, asked, call.key_of("there"));
  auto here = absence.server == ServerState::kAnswers ? asked : std::vector<Rank>();
  for (const auto* const absent : {&absence.missing, &absence.unheard}) {
    std::erase_if(here, [&](Rank other) { return std::binary_search(absent->begin(), absent->end(), other); });
  }
  const auto count = here.size();
  auto wanted = call.wanted_of(here, call.key_of("end"));
  for (auto& one : call.wanted_of(here, kEndedKey)) wanted.push_back(std::move(one));
  const auto is_of_step = [&call](Rank, const auto& text) { return call.of_step(text).has_value(); };
  const auto texts = call.session.read(wanted, steady_clock::now() + kAnswerTime, true, is_of_step);
  for (std::size_t i = 0; i < count; ++i) {
    const auto report = texts[i] ? read_record<RankReport>(decode_tagged_value(*texts[i])->bytes) : std::nullopt;
    if (report) reports.failures.push_back({wanted[i].rank, report->failure, report->has_lost_peer});
    if (!report && texts[count + i]) absence.missing.push_back(wanted[i].rank);
  }
  std::sort(absence.missing.begin(), absence.missing.end());
  if (!absence.is_empty()) reports.missing = describe_missing_ranks(call.self.layout, absence);
  return reports;
}

std::string name_of_pmix() { return pmix::load() ? cat({"PMIx ", pmix::version()}) : "PMIx"; }

class PmixEngine final : public ExchangeEngine {
 public:
  PmixEngine(StepRank self, PmixServer server, PmixSession session)
      : self_(std::move(self)), server_(std::move(server)), session_(std::move(session)) {
    const Place& here = self_.layout.place(self_.rank);
    if (!session_.is_shared() && here.local_size > 1 && here.local_rank == 0)
      meeting_ = NodeBarrier::open(meeting_name());
  }

  std::string name() const override { return name_of_pmix(); }

  Result<RankValues> run(const CallTag& tag, const Allgather& round) override {
    last_ = tag;  // also for a rank that ends in the call
    auto result = run_allgather({self_, server_, session_, tag}, round);
    if (!result && is_given_up(result.error())) given_up_ = tag;
    return result;
  }

  Result<RankReports> share_reports(const CallTag& tag, const std::optional<RankReport>& own,
                                    const std::vector<Rank>& asked) override {
    if (!asked.empty()) last_.reset();  // it no longer waits for the others
    const PmixRound call{self_, server_, session_, tag};
    const auto stored = own ? store_report(call, *own) : Status();
    if (!stored) return fail(stored.error());
    return asked.empty() ? RankReports() : read_reports(call, asked);
  }

  // The other ranks find the key when they look for this rank.
  void tell_end_of_rank() override {
    if (last_) leave_word(kEndedKey, *last_);
  }

  // All ranks of the node leave together: if a faster rank of the node has begun another fence meanwhile, perhaps
  // MPI's, the server takes the end of a connection for the loss of its rank (openpmix #3931).
  void leave(bool do_all_leave, Deadline deadline) override {
    if (given_up_) leave_word(kGivenUpKey, *given_up_);
    deadline = std::min(deadline, steady_clock::now() + kLeaveTime);
    bool is_noted = session_.close(deadline);
    const Place& here = self_.layout.place(self_.rank);
    if (session_.is_shared() || !do_all_leave || here.local_size < 2) return;
    is_noted &= here.local_rank == 0 ? meeting_.lead(here.local_size - 1, deadline)
                                     : NodeBarrier::wait(meeting_name(), deadline);
    if (!is_noted) sleep_for(std::chrono::milliseconds(20));  // was enough in 1,000 of 1,000 rounds without the barrier
  }

 private:
  // May block for as long as the server is silent.
  static void leave_word(const char* key, const CallTag& tag) {
    (void)pmix::put(pmix::Scope::kStep, key, encode_tagged_value(tag, ""));
  }

  std::string meeting_name() const {
    return cat({"bootstrap.", server_.name_space, ".", std::to_string(self_.layout.place(self_.rank).node)});
  }

  StepRank self_;
  PmixServer server_;
  PmixSession session_;
  NodeBarrier meeting_;  // open in the node's first rank
  std::optional<CallTag> last_;
  std::optional<CallTag> given_up_;
};

// Makes each call in a thread of its own, which owns all that it uses: the caller may stop waiting for the server.
class RidingEngine final : public ExchangeEngine {
 public:
  RidingEngine(StepRank self, PmixServer server) : self_(std::move(self)), server_(std::move(server)) {}
  ~RidingEngine() override { PmixSession::end_kept(); }

  std::string name() const override { return name_of_pmix(); }

  Result<RankValues> run(const CallTag& tag, const Allgather& round) override {
    const auto value = std::shared_ptr<Allgather>(new Allgather(round), [](Allgather* of_call) {
      wipe(of_call->value);
      delete of_call;
    });
    return ride<RankValues>([tag, value](ExchangeEngine& engine) { return engine.run(tag, *value); }, round.deadline);
  }

  Result<RankReports> share_reports(const CallTag& tag, const std::optional<RankReport>& own,
                                    const std::vector<Rank>& asked) override {
    const auto body = [tag, own, asked](ExchangeEngine& engine) { return engine.share_reports(tag, own, asked); };
    return ride<RankReports>(body, steady_clock::now());
  }

 private:
  template <class Value>
  Result<Value> ride(std::function<Result<Value>(ExchangeEngine&)> body, Deadline deadline) const {
    using Outcome = Result<Value>;
    const auto work = [self = self_, server = server_, body = std::move(body)]() -> Result<Outcome> {
      auto session = PmixSession::open(server, self.rank, false);
      if (!session) return Outcome(fail(session.error()));
      PmixEngine engine(self, server, std::move(*session));
      auto outcome = body(engine);
      engine.leave(false, Deadline::max());
      return outcome;
    };
    auto outcome = call_with_deadline<Outcome>("the call", work, deadline + kQueryTime + kLeaveTime);
    if (outcome) return std::move(*outcome);
    const bool is_late = outcome.error().code == ErrorCode::kTimeout;
    return fail(is_late ? Error{ErrorCode::kTimeout, describe_silence(self_, server_.from_mpirun)} : outcome.error());
  }

  StepRank self_;
  PmixServer server_;
};

}  // namespace

std::string describe_silence(const StepRank& self, bool from_mpirun) {
  return cat({"the PMIx server on this node (", self.layout.host_of(self.rank), ") does not answer",
              from_mpirun ? "" : "; look for slurmstepd in its slurmd.log, and for nodes where all ranks have ended"});
}

Engine connect_to_pmix(const StepRank& self, bool may_follow_another) {
  auto server = check_pmix_environment(self.environment, self.id, self.rank);
  if (!server) return fail(server.error());
  auto session = PmixSession::open(*server, self.rank, may_follow_another);
  if (!session) return fail(session.error());
  return Engine(std::make_unique<PmixEngine>(self, std::move(*server), std::move(*session)));
}

std::unique_ptr<ExchangeEngine> ride_on_own_pmix(const StepRank& self, const PmixServer& server) {
  return std::make_unique<RidingEngine>(self, server);
}

}  // namespace bootstrap
