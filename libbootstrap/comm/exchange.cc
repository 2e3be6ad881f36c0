// What the ranks of a step tell each other: small values, over PMIx or PMI-1, within a deadline.
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

// A process is one rank, however many handles it has open.
struct ProcessState {
  std::atomic<pid_t> owner{0};  // who ran the first round: neither a session nor a count of rounds survives a fork
  std::mutex mutex;             // held for the time of a round
  std::uint64_t rounds = 0;     // begun so far; the same on all ranks
};

ProcessState& process_state() {
  static auto* state = new ProcessState;  // never destroyed: a worker may outlive main()
  return *state;
}

class StepExchange final : public Exchange {
 public:
  explicit StepExchange(StepRank self) : self_(std::move(self)) {}

  Result<AllgatherResult> run(const Allgather& round) override;
  Result<RankWords> pass_word(const std::optional<RankWord>& own, const std::vector<Rank>& asked) override;
  std::string engine() const override { return engine_ ? engine_->name() : ""; }

 private:
  Status check(const Allgather& round) const;
  Result<AllgatherResult> run_alone(const Allgather& round) const;
  Result<AllgatherResult> run_with_others(const Allgather& round);
  std::string prefix(const Allgather& round) const;
  void print_time(const Allgather& round, std::chrono::steady_clock::time_point begin) const;

  StepRank self_;
  std::unique_ptr<ExchangeEngine> engine_;
  std::optional<CallTag> last_;  // the round that the words are about
};

Status StepExchange::check(const Allgather& round) const {
  if (round.local.size() > kMaxContribution || round.shared.value_or("").size() > kMaxContribution) {
    return fail(ErrorCode::kLimit, cat({"a rank passes more than ", std::to_string(kMaxContribution),
                                        " bytes; this call is for ids and addresses, use NCCL or MPI for data"}));
  }
  for (const Rank rank : round.read_shared) {
    if (rank >= self_.layout.size())
      return fail(ErrorCode::kInvalid, cat({"rank ", std::to_string(rank), " does not exist in this step"}));
  }
  return {};
}

Result<AllgatherResult> StepExchange::run_alone(const Allgather& round) const {
  AllgatherResult result;
  result.shared.assign(round.read_shared.size(), round.shared.value_or(""));
  if (round.read_local) result.local.push_back(round.local);
  return result;
}

Result<AllgatherResult> StepExchange::run_with_others(const Allgather& round) {
  ProcessState& process = process_state();
  // Before the lock: in a child that was forked in the midst of a round it stays locked for ever.
  pid_t owner = 0;
  if (!process.owner.compare_exchange_strong(owner, ::getpid()) && owner != ::getpid()) {
    return fail(
        ErrorCode::kUnsupported,
        "this process is a forked child of the rank, and exchanges do not work after fork(); make the call in the rank "
        "itself, or in a program that the child executes");
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

Result<RankWords> StepExchange::pass_word(const std::optional<RankWord>& own, const std::vector<Rank>& asked) {
  const std::lock_guard lock(process_state().mutex);
  return last_ ? engine_->pass_word(*last_, own, asked) : RankWords();
}

// "StepId=12.0 rank 3: barrier: ".
std::string StepExchange::prefix(const Allgather& round) const {
  return cat({about_rank(self_.id, self_.rank), round.purpose, ": "});
}

void StepExchange::print_time(const Allgather& round, std::chrono::steady_clock::time_point begin) const {
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  (void)std::fprintf(stderr, "%s%s%.1f ms over %s\n", std::string(kMessagePrefix).c_str(), prefix(round).c_str(),
                     took.count(), engine().c_str());
}

Result<AllgatherResult> StepExchange::run(const Allgather& round) {
  const auto begin = std::chrono::steady_clock::now();
  const auto checked = check(round);
  auto result = !checked                   ? Result<AllgatherResult>(fail(checked.error()))
                : self_.layout.size() == 1 ? run_alone(round)
                                           : run_with_others(round);
  if (!result) return fail(result.error().code, cat({prefix(round), result.error().message}));
  if (engine_ && process_settings(self_.environment).timing.value) print_time(round, begin);
  return result;
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(const StepId& id, const Layout& layout, Rank rank,
                                        const Environment& environment) {
  return std::make_unique<StepExchange>(StepRank{id, layout, rank, environment});
}

}  // namespace bootstrap
