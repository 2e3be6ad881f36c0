// The exchange: checks a round, counts it, and gives it to PMIx if the step has it, else to PMI-1.
// SPDX-License-Identifier: Apache-2.0
#include "comm/exchange.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <utility>

#include "comm/exchange_engine.h"
#include "core/settings/settings.h"
#include "core/util/text.h"
#include "probe/own_process.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTimeToReport{500};
constexpr std::chrono::milliseconds kTimeToLeave{1900};  // a call returns two seconds after its deadline

// All handles of a process share this: a process is one rank.
struct ProcessState {
  std::atomic<pid_t> owner{0};  // of the first round: neither a session nor the count of rounds survives a fork
  std::atomic<int> handles{0};
  std::mutex mutex;          // locked during a round; guards all members below
  std::uint64_t rounds = 0;  // begun so far; equal on all ranks
  std::optional<CallTag> given_up;
  std::array<std::unique_ptr<ExchangeEngine>, 2> helpers;  // by carrier; kept while a handle is open
  std::unique_ptr<ExchangeEngine> riding;                  // on this process's own PMIx session
};

ProcessState& process_state() {
  static auto* state = new ProcessState;  // never destroyed: a worker may outlive main()
  return *state;
}

void leave_helpers(bool do_all_leave, Deadline deadline) {
  for (auto& helper : process_state().helpers) {
    if (helper) helper->leave(do_all_leave, deadline);
    helper.reset();
  }
}

// MPI may open a session of this rank before the next call, and Slurm ends a step in which a rank has two.
bool may_open_own_pmix() { return is_loaded("libmpi") || is_loaded("libpmi"); }

class StepExchange final : public Exchange {
 public:
  explicit StepExchange(StepRank self) : self_(std::move(self)) { ++process_state().handles; }
  ~StepExchange() override {
    ProcessState& process = process_state();
    // In a forked child the helper belongs to the parent, and the mutex may be locked forever.
    if (--process.handles > 0 || process.owner != ::getpid()) return;
    const std::lock_guard lock(process.mutex);
    leave_helpers(true, steady_clock::now() + kTimeToLeave);
    process.riding.reset();
  }
  StepExchange(const StepExchange&) = delete;
  StepExchange& operator=(const StepExchange&) = delete;

  Result<RankValues> run(const Allgather& round) override {
    const auto begin = steady_clock::now();
    auto result = self_.layout.size() > 1 ? run_with_others(round) : RankValues(round.read.size(), round.value);
    if (round.refusal) result = fail(*round.refusal);  // also if the round succeeded
    // "StepId=12.0 rank 3: barrier: "
    const auto prefix = cat({about_rank(self_.id, self_.rank), round.purpose, ": "});
    if (!result) return fail(result.error().code, cat({prefix, result.error().message}));
    if (self_.layout.size() > 1 && process_settings(self_.environment).timing.value) {
      const std::chrono::duration<double, std::milli> took = steady_clock::now() - begin;
      (void)std::fprintf(stderr, "%s%s%.1f ms over %s\n", std::string(kMessagePrefix).c_str(), prefix.c_str(),
                         took.count(), name_.c_str());
    }
    return result;
  }

  Result<RankReports> share_reports(const std::optional<RankReport>& own, const std::vector<Rank>& asked) override {
    const std::lock_guard lock(process_state().mutex);
    if (!last_) return RankReports();
    auto engine = open_engine(steady_clock::now() + kTimeToReport);
    if (!engine) return fail(engine.error());
    auto reports = (*engine)->share_reports(*last_, own, asked);
    if (may_open_own_pmix()) leave_helpers(false, steady_clock::now() + kTimeToLeave);
    return reports;
  }

 private:
  Result<RankValues> run_with_others(const Allgather& round) {
    ProcessState& process = process_state();
    // Before the lock: a child that was forked during a round finds the mutex locked forever.
    pid_t owner = 0;
    const pid_t self = ::getpid();
    if (!process.owner.compare_exchange_strong(owner, self) && owner != self) {
      return fail(
          ErrorCode::kUnsupported,
          "this process is a forked child of the rank, and exchanges do not work after fork(); make the call in "
          "the rank itself, or in a program that the child executes");
    }
    const std::lock_guard lock(process.mutex);
    if (process.given_up) {
      return fail(ErrorCode::kUnavailable,
                  cat({"an earlier call of this rank failed, ", describe(*process.given_up),
                       ", and ranks may count calls differently since then; start a new step"}));
    }
    const auto refusal = round.refusal.value_or(Error());
    last_ = CallTag{self_.id, process.rounds++, round.purpose, refusal.message, refusal.code};
    auto engine = open_engine(round.deadline);
    if (!engine) return fail(engine.error());
    auto result = (*engine)->run(*last_, round);
    const bool have_all_called = result || !is_given_up(result.error());
    if (!have_all_called) process.given_up = last_;
    name_ = (*engine)->name();
    if (!have_all_called || may_open_own_pmix()) {
      leave_helpers(have_all_called, std::min(steady_clock::now(), round.deadline) + kTimeToLeave);
    }
    return result;
  }

  // All ranks choose the same engine.
  Result<ExchangeEngine*> open_engine(Deadline deadline) {
    const auto server = check_pmix_environment(self_.environment, self_.id, self_.rank);
    if (server && (server->from_mpirun || has_own_pmix())) {
      auto& riding = process_state().riding;
      if (!riding) riding = ride_on_own_pmix(self_, *server);
      return riding.get();
    }
    if (server) return open_helper(Carrier::kPmix, deadline);
    const bool is_missing = server.error().code == ErrorCode::kMissing;
    if (!is_missing || self_.id.launcher == Launcher::kMpirun) return fail(server.error());
    if (self_.environment.has("SLURM_SRUN_COMM_PORT")) return open_helper(Carrier::kPmi1, deadline);
    return fail(ErrorCode::kMissing, cat({server.error().message,
                                          "; PMI-1 is not available either: SLURM_SRUN_COMM_PORT is not set, which "
                                          "PMI-1 needs to reach srun"}));
  }

  Result<ExchangeEngine*> open_helper(Carrier carrier, Deadline deadline) const {
    auto& helper = process_state().helpers[static_cast<std::size_t>(carrier)];
    if (helper) return helper.get();
    auto started = start_helper(self_, carrier, may_open_own_pmix(), deadline);
    if (!started) return fail(started.error());
    helper = std::move(*started);
    return helper.get();
  }

  StepRank self_;
  std::optional<CallTag> last_;  // the round that reports belong to
  std::string name_;             // of the engine of the last round
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(StepRank self) { return std::make_unique<StepExchange>(std::move(self)); }

}  // namespace bootstrap
