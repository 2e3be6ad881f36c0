// Rounds and reports over the PMIx server of this node, within a deadline that the server cannot delay.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/exchange_engine.h"
#include "comm/pmix/allgather.h"
#include "comm/pmix/pmix_library.h"
#include "core/exchange/pmix_environment.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "probe/deadline.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

// Reports after a round, without a fence; runs on a worker's thread and may block forever. The result is there after
// kQueryTime and kAnswerTime, or kAnswerTime later if the server does not answer.
struct ReportTask : RoundTask {
  using RoundTask::RoundTask;

  void run() {
    auto session = PmixSession::open(server, rank);
    is_connected = true;
    result = session ? share(*session) : fail(session.error());
    has_result = true;
    if (session) (void)session->close(steady_clock::now() + kLeaveTime);
  }

  std::optional<RankReport> own;
  std::vector<Rank> asked;  // ascending

  // The worker writes it before has_result, and not later.
  Result<RankReports> result = fail(ErrorCode::kUnavailable, "the query did not run");

 private:
  Result<RankReports> share(const PmixSession& session) const {
    if (own) {
      const auto stored = store(session);
      if (!stored) return fail(stored.error());
    }
    return asked.empty() ? RankReports() : read(session);
  }

  // A server keeps the first value of a key that it has read, so a rank that waits, and fails later, puts two keys.
  Status store(const PmixSession& session) const {
    const auto& client = session.client();
    auto status = client.put(pmix::Scope::kStep, key_of("there"), encode_tagged_value(tag, ""));
    if (status && !own->failure.empty()) {
      status = client.put(pmix::Scope::kStep, key_of("end"), encode_tagged_value(tag, write_record(*own)));
    }
    return status ? client.commit() : status;
  }

  std::vector<Wanted> wanted_of(const std::vector<Rank>& ranks, const char* kind) const {
    std::vector<Wanted> wanted;
    for (const Rank other : ranks) {
      if (other == rank) continue;
      wanted.push_back({other, key_of(kind), layout.place(other).node != layout.place(rank).node});
    }
    return wanted;
  }

  // First the query for missing ranks, since nodes may have ended; then the reports of the ranks that it found.
  RankReports read(const PmixSession& session) const {
    RankReports reports;
    const auto absence = find_missing_ranks(session, *this, wanted_of(asked, "there"));
    if (!absence.is_empty()) reports.missing = describe_missing_ranks(layout, absence);
    if (absence.server != ServerState::kAnswers) return reports;
    auto here = asked;
    for (const auto* const absent : {&absence.missing, &absence.unheard}) {
      std::erase_if(here, [&](Rank other) { return std::binary_search(absent->begin(), absent->end(), other); });
    }
    const auto wanted = wanted_of(here, "end");
    const auto texts = session.read(wanted, steady_clock::now() + kAnswerTime, true, [this](Rank, const auto& text) {
      const auto value = decode_tagged_value(text);
      return value && value->tag == tag;
    });
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto report = texts[i] ? read_record<RankReport>(decode_tagged_value(*texts[i])->bytes) : std::nullopt;
      if (report) reports.failures.push_back({wanted[i].rank, report->failure, report->has_lost_peer});
    }
    return reports;
  }
};

// A process is one PMIx client, however many handles it has open.
struct LastRound {
  AbandonableThread worker;
  std::shared_ptr<RoundTask> job;  // not null: abandoned, and perhaps still in a call of libpmix
};

LastRound& last_round() {
  static auto* last = new LastRound;  // never destroyed: a worker may outlive main()
  return *last;
}

std::atomic<int> open_engines{0};

class PmixEngine final : public ExchangeEngine {
 public:
  PmixEngine(StepRank self, PmixServer server) : self_(std::move(self)), server_(std::move(server)) { ++open_engines; }
  ~PmixEngine() override {
    if (--open_engines == 0) PmixSession::end_kept();
  }
  PmixEngine(const PmixEngine&) = delete;
  PmixEngine& operator=(const PmixEngine&) = delete;

  std::string name() const override {
    const auto client = pmix::Client::load();
    return cat({"PMIx", client ? cat({" ", (*client)->version()}) : ""});
  }

  Result<RankValues> run(const CallTag& tag, const Allgather& round) override {
    const auto job = std::make_shared<AllgatherTask>(self_.layout, self_.rank, server_, tag);
    job->round = round;
    const auto done = work(
        job, [job] { run_allgather(*job); }, round.deadline, kQueryTime + kLeaveTime);
    if (!done) return fail(done.error());
    return job->result;
  }

  Result<RankReports> share_reports(const CallTag& tag, const std::optional<RankReport>& own,
                                    const std::vector<Rank>& asked) override {
    const auto job = std::make_shared<ReportTask>(self_.layout, self_.rank, server_, tag);
    job->own = own;
    job->asked = asked;
    const auto done = work(
        job, [job] { job->run(); }, steady_clock::now() + kAnswerTime, kQueryTime + 2 * kAnswerTime);
    if (!done) return fail(done.error());
    return job->result;
  }

 private:
  // Waits until the deadline, and for `more` once the task is connected. Fails if the task has no result by then.
  Status work(const std::shared_ptr<RoundTask>& job, std::function<void()> body, Deadline deadline,
              std::chrono::milliseconds more) const {
    auto& last = last_round();
    if (last.job && !last.worker.wait_until(steady_clock::now())) {
      return fail(ErrorCode::kUnavailable,
                  "an earlier call still waits for the PMIx server on this node; end the program");
    }
    last.job = job;
    auto started = last.worker.start(std::move(body));
    if (!started) return started;
    bool has_ended = last.worker.wait_until(deadline);
    if (!has_ended && job->is_connected) has_ended = last.worker.wait_until(deadline + more);
    if (has_ended) last.job.reset();
    if (job->has_result) return {};
    return fail(ErrorCode::kTimeout,
                cat({"the PMIx server on this node (", self_.layout.host_of(self_.rank), ") does not answer",
                     server_.from_mpirun
                         ? ""
                         : "; look for slurmstepd in its slurmd.log, and for nodes where all ranks have ended"}));
  }

  StepRank self_;
  PmixServer server_;
};

}  // namespace

Result<std::unique_ptr<ExchangeEngine>> make_pmix_engine(const StepRank& self) {
  auto server = check_pmix_environment(self.environment, self.id, self.rank);
  if (!server) return fail(server.error());
  return std::unique_ptr<ExchangeEngine>(std::make_unique<PmixEngine>(self, std::move(*server)));
}

}  // namespace bootstrap
