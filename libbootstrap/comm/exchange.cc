// The exchange: checks a round, counts it, and gives it to PMIx if the step has it, else to PMI-1.
// SPDX-License-Identifier: Apache-2.0
#include "comm/exchange.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <utility>

#include "comm/exchange_engine.h"
#include "core/settings/settings.h"
#include "core/step/step_id.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using std::chrono::steady_clock;

// All ranks choose the same engine.
Result<std::unique_ptr<ExchangeEngine>> choose_engine(const StepRank& self) {
  auto pmix = make_pmix_engine(self);
  if (pmix || pmix.error().code != ErrorCode::kMissing || self.id.launcher == Launcher::kMpirun) return pmix;
  auto pmi1 = make_pmi1_engine(self);
  if (pmi1) return pmi1;
  return fail(ErrorCode::kMissing,
              cat({pmix.error().message, "; PMI-1 is not available either: ", pmi1.error().message}));
}

// A process is one rank, however many handles it has open.
struct ProcessState {
  std::atomic<pid_t> owner{0};  // made the first round: neither a session nor the count of rounds survives a fork
  std::mutex mutex;             // locked during a round
  std::uint64_t rounds = 0;     // begun so far; equal on all ranks
};

ProcessState& process_state() {
  static auto* state = new ProcessState;  // never destroyed: a worker may outlive main()
  return *state;
}

class StepExchange final : public Exchange {
 public:
  explicit StepExchange(StepRank self) : self_(std::move(self)) {}

  Result<RankValues> run(const Allgather& round) override {
    const auto begin = steady_clock::now();
    const auto checked = check(round);
    auto result = !checked                   ? Result<RankValues>(fail(checked.error()))
                  : self_.layout.size() == 1 ? RankValues(round.read.size(), round.value)
                                             : run_with_others(round);
    // "StepId=12.0 rank 3: barrier: "
    const auto prefix = cat({about_rank(self_.id, self_.rank), round.purpose, ": "});
    if (!result) return fail(result.error().code, cat({prefix, result.error().message}));
    if (engine_ && process_settings(self_.environment).timing.value) {
      const std::chrono::duration<double, std::milli> took = steady_clock::now() - begin;
      (void)std::fprintf(stderr, "%s%s%.1f ms over %s\n", std::string(kMessagePrefix).c_str(), prefix.c_str(),
                         took.count(), engine_->name().c_str());
    }
    return result;
  }

  Result<RankReports> share_reports(const std::optional<RankReport>& own, const std::vector<Rank>& asked) override {
    const std::lock_guard lock(process_state().mutex);
    return last_ ? engine_->share_reports(*last_, own, asked) : RankReports();
  }

 private:
  Status check(const Allgather& round) const {
    if (round.value.size() > kMaxContribution) {
      return fail(ErrorCode::kLimit, cat({"a rank passes more than ", std::to_string(kMaxContribution),
                                          " bytes; this call is for ids and addresses, use NCCL or MPI for data"}));
    }
    for (const Rank rank : round.read) {
      if (rank >= self_.layout.size())
        return fail(ErrorCode::kInvalid, cat({"rank ", std::to_string(rank), " does not exist in this step"}));
    }
    return {};
  }

  Result<RankValues> run_with_others(const Allgather& round) {
    ProcessState& process = process_state();
    // Before the lock: a child that was forked during a round finds the mutex locked forever.
    pid_t owner = 0;
    if (!process.owner.compare_exchange_strong(owner, ::getpid()) && owner != ::getpid()) {
      return fail(
          ErrorCode::kUnsupported,
          "this process is a forked child of the rank, and exchanges do not work after fork(); make the call in "
          "the rank itself, or in a program that the child executes");
    }
    const std::lock_guard lock(process.mutex);
    if (!engine_) {
      auto chosen = choose_engine(self_);
      if (!chosen) return fail(chosen.error());
      engine_ = std::move(*chosen);
    }
    last_ = CallTag{self_.id, process.rounds++, round.purpose};
    return engine_->run(*last_, round);
  }

  StepRank self_;
  std::unique_ptr<ExchangeEngine> engine_;
  std::optional<CallTag> last_;  // the round that reports belong to
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(const StepId& id, const Layout& layout, Rank rank,
                                        const Environment& environment) {
  return std::make_unique<StepExchange>(StepRank{id, layout, rank, environment});
}

}  // namespace bootstrap
