// Rounds over PMI-1, which srun serves to every step, whatever its --mpi option.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <utility>
#include <vector>

#include "comm/exchange_engine.h"
#include "comm/pmi/pmi1_helper.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

constexpr std::string_view kRemedy = "start the program with srun --mpi=pmix";

// srun counts the ranks at a barrier, and never takes a rank back. After a round that was given up, a later barrier may
// end before all ranks have joined it.
std::atomic<bool> is_count_spoiled{false};

class Pmi1Engine final : public ExchangeEngine {
 public:
  explicit Pmi1Engine(StepRank self) : self_(std::move(self)) {}

  std::string name() const override { return "PMI-1"; }

  Result<AllgatherResult> run(const CallTag& tag, const Allgather& round) override {
    if (is_count_spoiled) {
      return fail(ErrorCode::kUnavailable,
                  cat({"an earlier call did not finish, and srun still counts this rank in it: PMI-1 cannot be used "
                       "again in this step; ",
                       kRemedy}));
    }
    auto both = encode_strings({round.shared.value_or(""), round.local});
    Pmi1Exchange exchange{self_.rank, static_cast<std::uint32_t>(self_.layout.size()), encode_tagged_value(tag, both),
                          ranks_to_read(round)};
    wipe(both);
    auto outcome = exchange_in_helper(self_.id, exchange, self_.environment, round.deadline);
    wipe(exchange.value);
    is_count_spoiled = outcome
                           ? outcome->may_have_arrived
                           : outcome.error().code == ErrorCode::kTimeout || outcome.error().code == ErrorCode::kMissing;
    if (!outcome) return fail(explain(outcome.error()));
    if (!outcome->trouble.empty()) {
      return fail(is_count_spoiled ? ErrorCode::kUnavailable : ErrorCode::kMissing,
                  cat({outcome->trouble, "; ", kRemedy}));
    }
    if (outcome->values.size() != exchange.wanted.size()) {
      return fail(ErrorCode::kUnavailable,
                  cat({"the helper process for PMI-1 returned an incomplete answer; ", kRemedy}));
    }
    auto result = read_all(tag, round, exchange.wanted, *outcome);
    for (auto& value : outcome->values) {
      if (value) wipe(*value);
    }
    return result;
  }

  Result<RankReports> share_reports(const CallTag& /*tag*/, const std::optional<RankReport>& /*own*/,
                                    const std::vector<Rank>& /*asked*/) override {
    return fail(ErrorCode::kUnsupported, cat({name(), " does not report which rank failed, srun --mpi=pmix does"}));
  }

 private:
  std::vector<Rank> ranks_to_read(const Allgather& round) const {
    auto ranks = round.read_shared;
    if (round.read_local) {
      const auto local = self_.layout.ranks_on(self_.layout.place(self_.rank).node);
      ranks.insert(ranks.end(), local.begin(), local.end());
    }
    return ranks;
  }

  Result<std::string> read(const CallTag& tag, Rank rank, const std::optional<std::string>& text, bool is_local) const {
    const auto value = text ? decode_tagged_value(*text) : std::nullopt;
    if (!value) {
      return fail(ErrorCode::kDisagreement, cat({describe_rank(self_.layout, rank),
                                                 " provided no value: it, or its MPI library, made another PMI-1 "
                                                 "call; all ranks must make the same calls in the same order"}));
    }
    if (value->tag != tag) return fail(disagreement(self_.layout, rank, value->tag, tag));
    auto both = decode_strings(value->bytes);
    if (!both || both->size() != 2)
      return fail(ErrorCode::kDisagreement,
                  "a rank uses another version of libbootstrap; install the same version on all nodes");
    wipe((*both)[is_local ? 0 : 1]);
    return std::move((*both)[is_local ? 1 : 0]);
  }

  Result<AllgatherResult> read_all(const CallTag& tag, const Allgather& round, const std::vector<Rank>& ranks,
                                   const Pmi1Outcome& outcome) const {
    AllgatherResult result;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const bool is_local = i >= round.read_shared.size();
      auto value = read(tag, ranks[i], outcome.values[i], is_local);
      if (!value) {
        for (auto& text : result.shared) wipe(text);
        return fail(value.error());
      }
      (is_local ? result.local : result.shared).push_back(std::move(*value));
    }
    return result;
  }

  static Error explain(const Error& error) {
    if (error.code != ErrorCode::kTimeout) {
      return {ErrorCode::kUnavailable, cat({"the helper process for PMI-1 failed: ", error.message, "; ", kRemedy})};
    }
    return {ErrorCode::kTimeout,
            "not all ranks joined the call before the deadline; PMI-1 does not report which, srun --mpi=pmix does"};
  }

  StepRank self_;
};

}  // namespace

Result<std::unique_ptr<ExchangeEngine>> make_pmi1_engine(const StepRank& self) {
  if (!self.environment.has("SLURM_SRUN_COMM_PORT")) {
    return fail(ErrorCode::kMissing, "SLURM_SRUN_COMM_PORT is not set, which PMI-1 needs to reach srun");
  }
  return std::unique_ptr<ExchangeEngine>(std::make_unique<Pmi1Engine>(self));
}

}  // namespace bootstrap
