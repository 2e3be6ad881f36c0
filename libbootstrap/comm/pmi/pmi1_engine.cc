// Rounds over PMI-1, which srun serves to every step, whatever its --mpi option.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <utility>
#include <vector>

#include "comm/exchange_engine.h"
#include "comm/pmi/helper_process.h"
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

  Result<RankValues> run(const CallTag& tag, const Allgather& round) override {
    if (is_count_spoiled) {
      return fail(ErrorCode::kUnavailable,
                  cat({"an earlier call did not finish, and srun still counts this rank in it: PMI-1 cannot be used "
                       "again in this step; ",
                       kRemedy}));
    }
    std::vector<std::string> request{encode_tagged_value(tag, round.value)};
    for (const Rank rank : round.read) request.push_back(std::to_string(rank));
    auto answer = ask_helper(request, environment_of_helper(), round.deadline);
    wipe(request.front());
    if (!answer) {
      is_count_spoiled = answer.error().code == ErrorCode::kTimeout || answer.error().code == ErrorCode::kMissing;
      return fail(explain(answer.error()));
    }
    auto result = read_all(tag, round.read, *answer);
    for (auto& text : *answer) wipe(text);
    return result;
  }

  Result<RankReports> share_reports(const CallTag& /*tag*/, const std::optional<RankReport>& /*own*/,
                                    const std::vector<Rank>& /*asked*/) override {
    return fail(ErrorCode::kUnsupported, cat({name(), " does not report which rank failed, srun --mpi=pmix does"}));
  }

 private:
  // Slurm's libpmi reads all from the environment. Components of a heterogeneous step have their own job ids, but one
  // srun serves them all: the first component's id counts.
  Environment environment_of_helper() const {
    auto changed = self_.environment;
    const auto set = [&](std::initializer_list<std::string_view> names, std::size_t value) {
      for (const auto name : names) changed.set(name, std::to_string(value));
    };
    set({"SLURM_JOB_ID", "SLURM_JOBID", "PMI_JOBID"}, self_.id.job);
    set({"SLURM_STEP_ID", "SLURM_STEPID", "PMI_STEPID"}, self_.id.step);
    set({"SLURM_PROCID", "PMI_RANK"}, self_.rank);
    set({"SLURM_NPROCS", "SLURM_NTASKS", "PMI_SIZE"}, self_.layout.size());
    for (const std::string_view name : {"PMI_FD", "PMI_DEBUG", "PMI_SPAWNED"}) changed.unset(name);
    return changed;
  }

  Result<std::string> read(const CallTag& tag, Rank rank, const std::string& text) const {
    const auto value = decode_tagged_value(text);
    if (!value) {
      return fail(ErrorCode::kDisagreement, cat({describe_rank(self_.layout, rank),
                                                 " provided no value: it, or its MPI library, made another PMI-1 "
                                                 "call; all ranks must make the same calls in the same order"}));
    }
    if (value->tag != tag) return fail(disagreement(self_.layout, rank, value->tag, tag));
    return std::string(value->bytes);
  }

  Result<RankValues> read_all(const CallTag& tag, const std::vector<Rank>& ranks,
                              const std::vector<std::string>& answer) const {
    const std::string_view state = answer.empty() ? std::string_view() : answer.front();
    is_count_spoiled = state != kPmi1Done && state != kPmi1NotBegun;
    if (state != kPmi1Done && answer.size() == 2) {
      return fail(is_count_spoiled ? ErrorCode::kUnavailable : ErrorCode::kMissing, cat({answer[1], "; ", kRemedy}));
    }
    if (state != kPmi1Done || answer.size() != ranks.size() + 1) {
      return fail(ErrorCode::kUnavailable,
                  cat({"the helper process for PMI-1 returned an incomplete answer; ", kRemedy}));
    }
    RankValues values;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      auto value = read(tag, ranks[i], answer[i + 1]);
      if (!value) {
        for (auto& text : values) wipe(text);
        return fail(value.error());
      }
      values.push_back(std::move(*value));
    }
    return values;
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
