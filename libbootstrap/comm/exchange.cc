// What the ranks of a step tell each other: small values, over the PMIx server of their slurmstepd, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#include "comm/exchange.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "comm/round.h"
#include "comm/session.h"
#include "comm/worker.h"
#include "core/pmix_gate.h"
#include "core/text.h"

namespace bootstrap {
namespace {

// A process is one PMIx client, however many handles it has open.
struct ProcessState {
  std::atomic<pid_t> owner{0};         // who ran the first: PMIx does not survive a fork
  std::mutex mutex;                    // held for the time of a round
  std::uint64_t rounds = 0;            // begun so far; the same on all ranks
  Worker worker;                       // of the last round
  std::shared_ptr<RoundJob> last_job;  // not null: it was given up, and may still be in the server's hands
};

ProcessState& process_state() {
  static auto* state = new ProcessState;  // never destroyed: a worker may outlive main()
  return *state;
}

std::atomic<int> open_exchanges{0};

class PmixExchange final : public Exchange {
 public:
  PmixExchange(const StepId& id, Layout layout, Rank rank, Environment environment)
      : id_(id), layout_(std::move(layout)), rank_(rank), environment_(std::move(environment)) {
    ++open_exchanges;
  }
  PmixExchange(const PmixExchange&) = delete;
  PmixExchange& operator=(const PmixExchange&) = delete;
  ~PmixExchange() override {
    if (--open_exchanges == 0) Session::end_kept();
  }

  Result<RoundResult> run(const Round& round) override;

 private:
  Status check(const Round& round) const;
  Result<RoundResult> run_alone(const Round& round) const;
  Result<RoundResult> run_with_others(const Round& round);
  Error name(const Round& round, const Error& error) const;

  StepId id_;
  Layout layout_;
  Rank rank_;
  Environment environment_;
};

Status PmixExchange::check(const Round& round) const {
  if (round.local.size() > kMaxContribution || round.shared.value_or("").size() > kMaxContribution) {
    return fail(ErrorCode::kLimit,
                cat({"more than ", std::to_string(kMaxContribution),
                     " bytes of one rank; this is for ids and addresses, use NCCL or MPI for data"}));
  }
  for (const Rank rank : round.read_shared) {
    if (rank >= layout_.size())
      return fail(ErrorCode::kInvalid, cat({"rank ", std::to_string(rank), " is not in the step"}));
  }
  return {};
}

Result<RoundResult> PmixExchange::run_alone(const Round& round) const {
  RoundResult result;
  result.shared.assign(round.read_shared.size(), round.shared.value_or(""));
  if (round.read_local) result.local.push_back(round.local);
  return result;
}

Result<RoundResult> PmixExchange::run_with_others(const Round& round) {
  const auto server = check_pmix_environment(environment_, id_, rank_);
  if (!server) return fail(server.error());
  ProcessState& process = process_state();
  // Before the lock: in a child that was forked in the midst of a round it stays locked for ever.
  pid_t owner = 0;
  if (!process.owner.compare_exchange_strong(owner, ::getpid()) && owner != ::getpid()) {
    return fail(ErrorCode::kUnsupported,
                "this process was forked from the rank, and PMIx does not survive a fork: "
                "make the call in the rank itself, or exec a program that makes it");
  }
  const std::lock_guard lock(process.mutex);
  if (process.last_job && !process.worker.wait_until(std::chrono::steady_clock::now())) {
    return fail(ErrorCode::kUnavailable,
                "an earlier call still waits for the PMIx server of this node; end the program");
  }
  auto job = std::make_shared<RoundJob>(layout_, rank_, *server, RoundTag{id_, process.rounds++, round.purpose}, round);
  process.last_job = job;
  const auto started = process.worker.start([job] { perform(*job); });
  if (!started) return fail(started.error());
  bool has_ended = process.worker.wait_until(round.deadline);
  if (!has_ended && job->is_connected) {
    has_ended = process.worker.wait_until(round.deadline + kRollCallTime + kLeaveTime);
  }
  if (has_ended) process.last_job.reset();
  if (job->has_result) return job->result;
  return fail(
      ErrorCode::kTimeout,
      cat({"the PMIx server of this node (", layout_.host_of(rank_), ") does not answer",
           server->is_mpiruns ? ""
                              : "; look for slurmstepd in its slurmd.log, and at nodes where all ranks have ended"}));
}

Error PmixExchange::name(const Round& round, const Error& error) const {
  return {error.code, cat({step_name(id_), " rank ", std::to_string(rank_), ": ", round.purpose, ": ", error.message})};
}

Result<RoundResult> PmixExchange::run(const Round& round) {
  const auto checked = check(round);
  if (!checked) return fail(name(round, checked.error()));
  auto result = layout_.size() == 1 ? run_alone(round) : run_with_others(round);
  if (!result) return fail(name(round, result.error()));
  return result;
}

}  // namespace

std::unique_ptr<Exchange> make_pmix_exchange(const StepId& id, const Layout& layout, Rank rank,
                                             const Environment& environment) {
  return std::make_unique<PmixExchange>(id, layout, rank, environment);
}

}  // namespace bootstrap
