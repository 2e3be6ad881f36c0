// One check as a rank runs it: every rank reports to rank 0, which also listens and judges.
// SPDX-License-Identifier: Apache-2.0
//
// Reports travel over TCP and not over the exchange: a fence in which a rank is missing brings no report and ends the
// step, PMI-1 cannot name the missing ranks, and before an MPI program there may be no exchange at all.
#include "tools/check/check_session.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "comm/exchange.h"
#include "core/util/text.h"
#include "probe/read_environment.h"
#include "tools/check/check_meeting.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kExchange(5);  // for the exchange, which itself may take two more
constexpr seconds kExchangeExcess(2);
constexpr seconds kTravel(2);  // for a small message on its way
constexpr milliseconds kParting(500);
// srun may end the step on the first exit status that is not 0, and drops what it has not read by then.
constexpr milliseconds kTravelTimeOfTable(300);
constexpr const char* kWell = "verdict 0";

// What the process does now, for the message if it hangs.
std::atomic<const char*> limited_command = "the command";
std::atomic<const char*> activity = "its start";

void end_process(int /*signal*/) {
  for (const char* const part : {"bootstrap: ", limited_command.load(),
                                 " did not end within its deadlines; it hangs in ", activity.load(), "\n"}) {
    (void)!::write(STDERR_FILENO, part, std::strlen(part));
  }
  ::_exit(1);
}

// Longer than any rank may take. The first rank waits twice as long: rank 0 may start at the last moment, and then
// waits for the others.
seconds longest_check(seconds timeout) {
  return 2 * timeout + kTravel + 2 * (kExchange + kExchangeExcess) + 3 * kTravel + seconds(1);
}

Deadline in(milliseconds time) { return Deadline::clock::now() + time; }

void complain(const CheckSelf& self, std::string_view sentence) {
  const auto who = cat({step_name(self.facts.id), " task ", std::to_string(self.report.rank)});
  (void)std::fputs(cat({"bootstrap: ", who, ": ", sentence, "\n"}).c_str(), stderr);
}

// Each rank reads what its neighbour wrote, so that every rank sends and receives.
void try_exchange(CheckSelf& self) {
  auto& report = self.report;
  const auto& layout = self.facts.layout;
  const auto neighbour = static_cast<Rank>((report.rank + 1) % layout.size());
  const auto begin = Deadline::clock::now();
  const auto exchange = make_exchange({self.facts.id, layout, report.rank, process_environment()});
  const auto result = exchange->run(
      {.purpose = "check", .value = std::to_string(report.rank), .read = {neighbour}, .deadline = in(kExchange)});
  report.has_exchanged = true;
  report.exchange_us = static_cast<std::uint64_t>((Deadline::clock::now() - begin) / std::chrono::microseconds(1));
  report.lacks_exchange = !result && result.error().code == ErrorCode::kMissing;
  if (!result) {
    report.exchange_trouble = result.error().message;
  } else if (result->front() != std::to_string(neighbour)) {
    report.exchange_trouble = "the received value is not the one that was sent";
  }
}

// The exchange needs all ranks, and each chooses PMIx or PMI-1 itself: if their choices differed, they would wait.
bool can_exchange(const std::vector<std::optional<CheckReport>>& reports) {
  const auto has_pmix = [](const auto& report) { return report && report->has_pmix && !report->pmix_client.empty(); };
  const auto has_none = [](const auto& report) { return report && !report->has_pmix; };
  return reports.size() > 1 && (std::all_of(reports.begin(), reports.end(), has_pmix) ||
                                std::all_of(reports.begin(), reports.end(), has_none));
}

void judge(CheckServer& server, CheckFindings& findings, const CheckReport& own, const CheckSession& session) {
  const auto begin = Deadline::clock::now();
  server.gather_reports(begin + session.timeout);
  const auto waited = std::chrono::ceil<milliseconds>(Deadline::clock::now() - begin);
  findings.waited_ms = static_cast<std::uint64_t>(waited.count());
  findings.leaves_exchange = session.leaves_exchange;
  if (!session.leaves_exchange && can_exchange(findings.reports)) {
    findings.has_exchanged = true;
    server.gather_exchanges(in(kExchange + kExchangeExcess + kTravel));
  }
  if (!findings.reports[0]) (findings.reports[0] = own)->reach = Reach::kUnreachable;
  const bool is_well = session.show(findings);
  if (!is_well) sleep_for(kTravelTimeOfTable);
  server.send_verdict(is_well ? kWell : "verdict 1", in(kParting));
}

bool report_to_rank_zero(CheckSelf& self, const CheckSession& session) {
  auto& report = self.report;
  // Rank 0 need not know the name of its host.
  const auto host = report.rank == 0 ? std::string("127.0.0.1") : self.facts.layout.host_of(0);
  activity = "connecting to rank 0";
  auto rank_zero = find_rank_zero(report, self.facts.id, host, in(session.timeout));
  if (!rank_zero) {
    complain(self, cat({"this rank, on ", report.host, ", cannot reach rank 0 at ", report.address, ":",
                        std::to_string(report.port), " within ", std::to_string(session.timeout.count()),
                        " s: ", rank_zero.error().message}));
    // Rank 0 may be about to print what it knows, which srun would drop if this rank ended the step now.
    sleep_for(kTravel);
    return false;
  }
  const auto ask = [&](seconds wait) {
    (void)rank_zero->send(cat({"report ", write_record(report)}), in(kTravel));
    return rank_zero->receive(in(wait));
  };
  // Half of the time: the report has to arrive before rank 0 ends its wait.
  add_answers(report, self.programs, in(std::min(milliseconds(session.timeout) / 2, kTimeOfPrograms)));
  activity = "waiting for rank 0";
  auto answer = ask(session.timeout + kTravel);
  if (answer == "exchange") {
    activity = "the exchange";
    try_exchange(self);
    activity = "waiting for the verdict of rank 0";
    answer = ask(kExchange + kExchangeExcess + kTravel);
  }
  if (!answer) complain(self, "rank 0 ended before it sent the result of the check");
  return answer == kWell;
}

}  // namespace

bool run_check(CheckSelf self, const CheckSession& session) {
  if (self.report.rank != 0) return report_to_rank_zero(self, session);
  CheckFindings findings;
  findings.id = self.facts.id;
  findings.layout = self.facts.layout;
  CheckServer server(findings);
  AbandonableThread judging;
  auto begun = server.listen(self.report.port);
  if (begun) begun = judging.start([&, own = self.report] { judge(server, findings, own, session); });
  if (!begun) {
    complain(self, begun.error().message);
    return false;
  }
  const bool is_well = report_to_rank_zero(self, session);
  return judging.wait_until(in(longest_check(session.timeout))) && is_well;
}

void limit_time(const char* command, seconds timeout) {
  limited_command = command;
  (void)::signal(SIGALRM, end_process);
  (void)::alarm(static_cast<unsigned>(longest_check(timeout).count()));
}

}  // namespace bootstrap
