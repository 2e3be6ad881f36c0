// One check from a rank's point of view: rank 0 listens and judges, the others go there and tell.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_session.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "comm/exchange.h"
#include "core/step/rank_names.h"
#include "core/util/text.h"
#include "probe/read_environment.h"
#include "tools/check/check_client.h"
#include "tools/check/check_server.h"
#include "tools/check/watchdog.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kExchange(5);  // for the exchange over PMIx, which itself may take two more
constexpr seconds kExchangeExcess(2);
constexpr seconds kTravel(2);  // for what is small and on its way
constexpr milliseconds kParting(500);
// srun may end the step on the first exit status that is not 0, and drops what it has not read by then.
constexpr milliseconds kTravelTimeOfTable(300);

Deadline in(milliseconds time) { return Deadline::clock::now() + time; }

seconds exchange_time(seconds timeout) { return std::min(kExchange, timeout); }

void sleep_for(milliseconds time) { (void)::poll(nullptr, 0, static_cast<int>(time.count())); }

void complain(const CheckSelf& self, std::string_view sentence) {
  const auto line =
      cat({"bootstrap: ", step_name(self.facts.id), " task ", std::to_string(self.report.rank), ": ", sentence, "\n"});
  (void)std::fputs(line.c_str(), stderr);
}

// Each rank reads what its neighbour said, so that every rank is heard and listens.
ExchangeOutcome try_exchange(const CheckSelf& self, seconds timeout) {
  const auto& layout = self.facts.layout;
  const auto rank = self.report.rank;
  const auto neighbour = static_cast<Rank>((rank + 1) % layout.size());
  const auto word_of = [](Rank speaker) { return cat({"check of rank ", std::to_string(speaker)}); };
  const auto begin = Deadline::clock::now();
  Watchdog::now("the exchange");
  const auto exchange = make_exchange(self.facts.id, layout, rank, process_environment());
  Allgather round;
  round.purpose = "check";
  round.shared = word_of(rank);
  round.read_shared = {neighbour};
  round.deadline = in(exchange_time(timeout));
  const auto result = exchange->run(round);
  ExchangeOutcome outcome;
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Deadline::clock::now() - begin);
  outcome.took_us = static_cast<std::uint64_t>(took.count());
  if (!result) {
    outcome.trouble = result.error().message;
    outcome.is_missing = result.error().code == ErrorCode::kMissing;
  } else if (result->shared.size() != 1 || result->shared.front() != word_of(neighbour)) {
    outcome.trouble = "something else arrived than was sent";
  }
  return outcome;
}

// It takes all ranks, and each chooses by itself what carries it: where they would not choose alike, they would wait.
bool can_exchange(const std::vector<std::optional<CheckReport>>& reports) {
  const auto has_pmix = [](const auto& report) { return report && report->has_pmix && !report->pmix_client.empty(); };
  const auto has_none = [](const auto& report) { return report && !report->has_pmix; };
  return reports.size() > 1 && (std::all_of(reports.begin(), reports.end(), has_pmix) ||
                                std::all_of(reports.begin(), reports.end(), has_none));
}

bool check_as_rank_zero(CheckSelf& self, const CheckSession& session) {
  const auto begin = Deadline::clock::now();
  auto& report = self.report;
  auto host = CheckServer::open(report.step_tag, self.facts.layout.size());
  if (!host) {
    complain(self, host.error().message);
    return false;
  }
  CheckFindings findings;
  findings.id = self.facts.id;
  findings.layout = self.facts.layout;
  const auto listening = host->listen(report.port);
  if (!listening) findings.port_trouble = listening.error().message;
  host->open_side_door(side_doors(self.facts.id));
  const auto own = try_own_way(report.address, report.port, listening.has_value(), begin + session.timeout);
  report.reach = own.reach;
  report.reach_trouble = own.trouble;
  report.target = own.target;
  host->reports()[0] = report;
  Watchdog::now("hearing the other ranks");
  host->gather_reports(begin + session.timeout);
  const auto waited = std::chrono::duration_cast<milliseconds>(Deadline::clock::now() - begin);
  findings.waited_ms = static_cast<std::uint64_t>(std::max<std::int64_t>(waited.count(), 1));
  findings.leaves_exchange = session.leaves_exchange;
  if (!session.leaves_exchange && can_exchange(host->reports())) {
    findings.has_exchanged = true;
    host->tell(FrameKind::kExchange, {});
    host->outcomes()[0] = try_exchange(self, session.timeout);
    Watchdog::now("hearing how the exchange went");
    // The others began after us, by no more than a message takes.
    host->gather_outcomes(in(kExchangeExcess + kTravel));
  }
  findings.strangers = host->strangers();
  findings.reports = std::move(host->reports());
  findings.outcomes = std::move(host->outcomes());
  const auto table = judge_step(findings);
  const bool is_well = table.worst() != CheckResult::kFailed;
  if (session.show) session.show(table);
  if (!is_well) sleep_for(kTravelTimeOfTable);
  // Before anybody hears the verdict: whoever becomes its program then shall not find us where it looks for rank 0.
  host->close_doors();
  host->tell(FrameKind::kVerdict, is_well ? "0" : "1");
  host->part(in(kParting));
  return is_well;
}

bool check_as_guest(CheckSelf& self, const CheckSession& session) {
  auto& report = self.report;
  const MeetingPlace place{report.address, report.port, self.facts.layout.host_of(0), side_doors(self.facts.id)};
  Watchdog::now("the way to rank 0");
  auto visit = visit_rank_zero(place, {report.step_tag, report.rank}, in(session.timeout));
  if (!visit) {
    complain(self, cat({"this rank, on ", report.host, ", cannot reach rank 0 at ", report.address, ":",
                        std::to_string(report.port), " within ", std::to_string(session.timeout.count()),
                        " s: ", visit.error().message}));
    // Rank 0 may be about to print what it knows, which srun would drop if this rank ended the step now.
    sleep_for(kTravel);
    return false;
  }
  add_way(report, *visit);
  auto& talk = visit->talk;
  const bool is_sent = talk.say(FrameKind::kReport, write_report(report), in(kTravel));
  Watchdog::now("waiting for rank 0");
  auto answer = is_sent ? talk.hear(in(session.timeout + kTravel)) : std::nullopt;
  if (answer && answer->kind == FrameKind::kExchange) {
    const auto outcome = try_exchange(self, session.timeout);
    Watchdog::now("waiting for the verdict of rank 0");
    (void)talk.say(FrameKind::kOutcome, write_outcome(outcome), in(kTravel));
    answer = talk.hear(in(exchange_time(session.timeout) + kExchangeExcess + kTravel));
  }
  if (answer && answer->kind == FrameKind::kVerdict) return answer->body == "0";
  complain(self, "this rank reported to rank 0, and rank 0 ended without a word about the result");
  return false;
}

}  // namespace

bool run_check(CheckSelf self, const CheckSession& session) {
  return self.report.rank == 0 ? check_as_rank_zero(self, session) : check_as_guest(self, session);
}

seconds longest_check(seconds timeout) {
  const auto tail = kTravel + exchange_time(timeout) + kExchangeExcess + kTravel + kExchangeExcess + kTravel;
  return 2 * timeout + tail + seconds(1);
}

}  // namespace bootstrap
