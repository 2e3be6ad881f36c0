// The engine of a rank whose helper process does the work: requests, and what it means if no answer comes.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <utility>

#include "comm/helper/helper_main.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// After a deadline a helper for PMIx asks for the missing ranks. One for PMI-1 waits in libpmi.
constexpr milliseconds kTimeToAsk{1800};
constexpr milliseconds kReportTime{1750};

class HelperEngine final : public ExchangeEngine {
 public:
  // `silence`: what it means that no answer comes so long after a deadline.
  HelperEngine(std::unique_ptr<HelperProcess> helper, milliseconds more, std::string silence)
      : helper_(std::move(helper)), more_(more), silence_(std::move(silence)) {}

  Status open(Carrier carrier, bool may_follow_another, Deadline deadline) {
    const auto answer =
        ask({std::string(kVersion), std::to_string(static_cast<int>(carrier)), as_text(may_follow_another)}, deadline);
    if (!answer) return fail(answer.error());
    name_ = answer->at(1);
    return {};
  }

  std::string name() const override { return name_; }

  Result<RankValues> run(const CallTag& tag, const Allgather& round) override {
    const auto deadline = std::chrono::nanoseconds(round.deadline.time_since_epoch()).count();
    std::vector<std::string> request{std::string(helper_request::kRun)};
    request.push_back(encode_tagged_value(tag, round.value));
    request.push_back(std::to_string(deadline));
    request.push_back(as_text(round.is_for_step));
    request.push_back(as_bytes(round.read));
    auto answer = ask(std::move(request), round.deadline + more_);
    if (!answer) return fail(answer.error());
    answer->erase(answer->begin());
    return std::move(*answer);
  }

  Result<RankReports> share_reports(const CallTag& tag, const std::optional<RankReport>& own,
                                    const std::vector<Rank>& asked) override {
    const auto report = encode_tagged_value(tag, own ? write_record(*own) : "");
    const auto answer =
        ask({std::string(helper_request::kReport), report, as_bytes(asked)}, steady_clock::now() + kReportTime);
    if (!answer) return fail(answer.error());
    RankReports reports;
    reports.missing = answer->at(1);
    for (std::size_t i = 2; i + 1 < answer->size(); i += 2) {
      auto one = read_record<RankReport>((*answer)[i + 1]).value_or(RankReport());
      one.rank = parse_unsigned<Rank>((*answer)[i]).value_or(0);
      reports.failures.push_back(std::move(one));
    }
    return reports;
  }

  void leave(bool do_all_leave, Deadline deadline) override {
    if (!is_lost_) (void)ask({std::string(helper_request::kLeave), as_text(do_all_leave)}, deadline);
    if (!is_lost_) (void)helper_->wait_for_end(deadline);
  }

 private:
  Result<std::vector<std::string>> ask(std::vector<std::string> request, Deadline deadline) {
    auto answer = helper_->ask(request, deadline);
    for (auto& text : request) wipe(text);
    if (!answer) is_lost_ = true;
    if (!answer && answer.error().code == ErrorCode::kTimeout) return fail(ErrorCode::kTimeout, silence_);
    if (!answer) {
      return fail(ErrorCode::kUnavailable,
                  cat({"the helper process of this rank failed: ", answer.error().message, "; start a new step"}));
    }
    if (answer->empty() || (!answer->front().empty() && answer->size() < 2))
      return fail(ErrorCode::kUnavailable, "the helper process of this rank gave no whole answer");
    const auto code = parse_unsigned(answer->front());
    if (code) return fail(static_cast<ErrorCode>(*code), answer->at(1));
    return answer;
  }

  std::unique_ptr<HelperProcess> helper_;
  milliseconds more_;
  std::string silence_;
  std::string name_;
  bool is_lost_ = false;  // it gave no answer
};

}  // namespace

Engine start_helper(const StepRank& self, Carrier carrier, bool may_follow_another, Deadline deadline) {
  const bool is_pmi1 = carrier == Carrier::kPmi1;
  auto helper = HelperProcess::start(self.environment, deadline);
  if (!helper) {
    return fail(helper.error().code,
                cat({"the helper process for ", is_pmi1 ? "PMI-1" : "PMIx", " failed: ", helper.error().message,
                     is_pmi1 ? "; start the program with srun --mpi=pmix" : ""}));
  }
  constexpr const char* kOfPmi1 =
      "not all ranks joined the call before the deadline; PMI-1 does not report which, srun --mpi=pmix does";
  auto engine = std::make_unique<HelperEngine>(std::move(*helper), is_pmi1 ? milliseconds(0) : kTimeToAsk,
                                               is_pmi1 ? kOfPmi1 : describe_silence(self, false));
  if (auto opened = engine->open(carrier, may_follow_another, deadline); !opened) return fail(opened.error());
  return Engine(std::move(engine));
}

}  // namespace bootstrap
