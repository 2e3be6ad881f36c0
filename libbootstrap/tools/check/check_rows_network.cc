// The rows about the way to rank 0: the address, the port, and the clocks at both ends.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/util/text.h"
#include "tools/check/check_rows.h"

namespace bootstrap::check {
namespace {

// Less is what a timestamp in a log or a timeout in seconds does not notice.
constexpr std::uint64_t kMaxSkew = 100'000;  // microseconds

bool is_loopback(const CheckReport& report) { return report.target.starts_with("127.") || report.target == "::1"; }

std::string describe_reach(const CheckReport& report) {
  const auto whom =
      report.target.empty() ? meeting_point(report) : cat({meeting_point(report), " (", report.target, ")"});
  const auto words = report.reach_trouble.empty() ? std::string() : cat({" (", report.reach_trouble, ")"});
  switch (report.reach) {
    case Reach::kNoName:
      return cat({"the name ", report.address, " means nothing there", words});
    case Reach::kRefused:
      return cat({whom, " refuses: nobody listens there", words});
    case Reach::kSilent:
      return cat({whom, " does not answer", words});
    case Reach::kUnreachable:
      return cat({"no way to ", whom, words});
    case Reach::kForeign:
      return cat({whom, " is somebody else", words});
    case Reach::kReached:
      break;
  }
  return {};
}

std::string_view cure_of(const CheckReport& report) {
  if (is_loopback(report)) {
    return "that address is each machine itself: let MASTER_ADDR be a name that other nodes know";
  }
  switch (report.reach) {
    case Reach::kNoName:
      return "/etc/hosts or DNS of these nodes; or another name with srun --bootstrap-addr";
    case Reach::kSilent:
      return "a firewall between the nodes, or an address of the wrong network";
    case Reach::kUnreachable:
      return "the network interface and the routes of these nodes";
    case Reach::kForeign:
    case Reach::kRefused:
    case Reach::kReached:
      break;
  }
  return "MASTER_ADDR has to be an address of the host of rank 0";
}

// Nobody can reach a port that rank 0 did not get, and who plans with another one is in the row of the plan.
bool is_cut_off(const Survey& survey, const CheckReport& report) {
  if (report.reach == Reach::kReached || !plans_as(report, survey.first())) return false;
  const bool is_of_port = report.reach == Reach::kRefused || report.reach == Reach::kForeign;
  return survey.findings().port_trouble.empty() || !is_of_port;
}

std::string join(const std::vector<Variant>& variants) {
  std::string text;
  for (const auto& variant : variants) text += cat({text.empty() ? "" : " and ", variant.value});
  return text;
}

CheckRow network_in_order(const Survey& survey) {
  const auto& layout = survey.layout();
  const auto& first = survey.first();
  auto text = cat({first.address, " is ", first.target});
  if (layout.node_count() > 1 && is_loopback(first)) {
    return warning("network", cat({text, " on its own node: Gloo would tell its peers that address"}), {},
                   "take the name out of that line of /etc/hosts, or set GLOO_SOCKET_IFNAME");
  }
  const auto home = layout.place(0).node;
  const auto interfaces = survey.variants([&](const CheckReport& report) {
    return layout.place(report.rank).node == home ? std::string() : report.interface;
  });
  std::uint64_t slowest = 0;
  for (const auto* const report : survey.reports()) slowest = std::max(slowest, report->round_trip_us);
  if (!interfaces.empty()) text += cat({" (", join(interfaces), ")"});
  if (layout.size() > 1) text += cat({", ", milliseconds(slowest), " there and back"});
  return ok("network", std::move(text));
}

std::uint64_t skew_of(const CheckReport& report) {
  const auto offset = static_cast<std::uint64_t>(report.clock_offset_us);
  return report.clock_offset_us < 0 ? 0 - offset : offset;
}

}  // namespace

CheckRow network_row(const Survey& survey) {
  auto cut_off = survey.where([&](const CheckReport& report) { return is_cut_off(survey, report); });
  if (cut_off.empty()) return network_in_order(survey);
  const auto reasons = survey.variants(
      [&](const CheckReport& report) { return is_cut_off(survey, report) ? describe_reach(report) : std::string(); });
  const auto& most_frequent = reasons.front();
  return failed("network", most_frequent.value, std::move(cut_off),
                std::string(cure_of(survey.report(most_frequent.ranks.front()))));
}

CheckRow port_row(const Survey& survey) {
  const auto number = std::to_string(survey.first().port);
  const auto port = cat({number, " on ", survey.layout().host_of(0)});
  const auto& trouble = survey.findings().port_trouble;
  if (trouble.empty()) return ok("port", cat({port, " is free for rank 0 to listen on"}));
  return failed("port", cat({port, " is not free for rank 0: ", trouble}), {},
                cat({"ss -ltnp \"sport = :", number, "\" there shows who has it; srun --bootstrap-port=N chooses ",
                     "another one"}));
}

CheckRow clock_row(const Survey& survey) {
  if (survey.layout().node_count() == 1) return ok("clocks", "one node, one clock");
  std::uint64_t most = 0;
  for (const auto* const report : survey.reports()) most = std::max(most, skew_of(*report) + report->clock_error_us);
  // What the travel time of the question may hide is held in favour of the clock.
  auto wrong =
      survey.where([](const CheckReport& report) { return skew_of(report) > kMaxSkew + report.clock_error_us; });
  if (wrong.empty()) return ok("clocks", cat({"within ", milliseconds(most), " of rank 0's"}));
  return warning("clocks", cat({"up to ", milliseconds(most), " off rank 0's"}), std::move(wrong),
                 "logs and timeouts of these nodes cannot be compared; see chronyc tracking");
}

}  // namespace bootstrap::check
