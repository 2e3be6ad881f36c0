// Rounds over the PMIx server of this node, within a deadline that the server cannot delay.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "comm/exchange_engine.h"
#include "comm/pmix/allgather.h"
#include "comm/pmix/pmix_library.h"
#include "comm/pmix/pmix_session.h"
#include "comm/pmix/rank_presence.h"
#include "core/exchange/pmix_environment.h"
#include "core/util/text.h"
#include "probe/abandonable_thread.h"

namespace bootstrap {
namespace {

// A process is one PMIx client, however many handles it has open.
struct LastRound {
  AbandonableThread worker;
  std::shared_ptr<RoundTask> job;  // not null: it was given up, and may still be in the server's hands
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
  Result<AllgatherResult> run(const CallTag& tag, const Allgather& round) override;
  Result<RankWords> pass_word(const CallTag& tag, const std::optional<RankWord>& own,
                              const std::vector<Rank>& asked) override;

 private:
  Status work(const std::shared_ptr<RoundTask>& job, std::function<void()> body, Deadline deadline,
              std::chrono::milliseconds more) const;

  StepRank self_;
  PmixServer server_;
};

// Waits until the deadline, and for `more` once the task is connected. Fails where the task has no result by then.
Status PmixEngine::work(const std::shared_ptr<RoundTask>& job, std::function<void()> body, Deadline deadline,
                        std::chrono::milliseconds more) const {
  auto& last = last_round();
  if (last.job && !last.worker.wait_until(std::chrono::steady_clock::now())) {
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
  return fail(
      ErrorCode::kTimeout,
      cat({"the PMIx server on this node (", self_.layout.host_of(self_.rank), ") does not answer",
           server_.from_mpirun ? ""
                               : "; look for slurmstepd in its slurmd.log, and for nodes where all ranks have ended"}));
}

Result<AllgatherResult> PmixEngine::run(const CallTag& tag, const Allgather& round) {
  const auto job = std::make_shared<AllgatherTask>(self_.layout, self_.rank, server_, tag, round);
  const auto done = work(
      job, [job] { run_allgather(*job); }, round.deadline, kQueryTime + kLeaveTime);
  if (!done) return fail(done.error());
  return job->result;
}

Result<RankWords> PmixEngine::pass_word(const CallTag& tag, const std::optional<RankWord>& own,
                                        const std::vector<Rank>& asked) {
  const auto job = std::make_shared<PresenceTask>(self_.layout, self_.rank, server_, tag, own, asked);
  const auto soon = std::chrono::steady_clock::now() + kAnswerTime;
  const auto done = work(
      job, [job] { run_presence(*job); }, soon, kQueryTime + 2 * kAnswerTime);
  if (!done) return fail(done.error());
  return job->result;
}

}  // namespace

Result<std::unique_ptr<ExchangeEngine>> make_pmix_engine(const StepRank& self) {
  auto server = check_pmix_environment(self.environment, self.id, self.rank);
  if (!server) return fail(server.error());
  return std::unique_ptr<ExchangeEngine>(std::make_unique<PmixEngine>(self, std::move(*server)));
}

}  // namespace bootstrap
