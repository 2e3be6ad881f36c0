// The rows about the way to rank 0: the address, the port, and the clocks at both ends.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/util/text.h"
#include "tools/check/rows/rows.h"

namespace bootstrap::check {
namespace {

// Less is what a timestamp in a log or a timeout in seconds does not notice.
constexpr std::uint64_t kMaxSkew = 100'000;  // microseconds

bool is_loopback(const CheckReport& report) { return report.target.starts_with("127.") || report.target == "::1"; }

constexpr std::string_view kWrongAddress = "set MASTER_ADDR to an address of the host of rank 0";

// What is said before and after the place that was not reached, and what to do. By Reach.
struct ReachWords {
  std::string_view before;
  std::string_view after;
  std::string_view hint;
};
constexpr std::array<ReachWords, 6> kReachWords{{
    {"", "", kWrongAddress},
    {"the name ", " does not resolve",
     "correct /etc/hosts or DNS on these nodes, or choose another name: srun --bootstrap-addr=NAME"},
    {"", " refuses connections: no process listens there", kWrongAddress},
    {"", " does not answer", "look for a firewall between the nodes, or an address of the wrong network"},
    {"cannot reach ", "", "check the network interface and the routes of these nodes"},
    {"another program answers at ", "", kWrongAddress},
}};

const ReachWords& words_of(const CheckReport& report) { return kReachWords[static_cast<std::size_t>(report.reach)]; }

std::string in_brackets(const std::string& text) { return text.empty() ? text : cat({" (", text, ")"}); }

std::string describe_reach(const CheckReport& report) {
  const auto place = report.reach == Reach::kNoName ? report.address : meeting_point(report);
  return cat({words_of(report).before, place, in_brackets(report.target), words_of(report).after,
              in_brackets(report.reach_trouble)});
}

std::string_view hint_of(const CheckReport& report) {
  if (!is_loopback(report)) return words_of(report).hint;
  return "this is the loopback address of each node; set MASTER_ADDR to a name that other nodes resolve";
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
    return warning("network", cat({text, " on its own node; Gloo would send that address to other nodes"}), {},
                   "remove the name from that line of /etc/hosts, or set GLOO_SOCKET_IFNAME");
  }
  const auto home = layout.place(0).node;
  const auto interfaces = survey.variants([&](const CheckReport& report) {
    return layout.place(report.rank).node == home ? std::string() : report.interface;
  });
  std::uint64_t slowest = 0;
  for (const auto* const report : survey.reports()) slowest = std::max(slowest, report->round_trip_us);
  if (!interfaces.empty()) text += cat({" (", join(interfaces), ")"});
  if (layout.size() > 1) text += cat({", round trip ", milliseconds(slowest)});
  return ok("network", std::move(text));
}

}  // namespace

CheckRow network_row(const Survey& survey) {
  auto cut_off = survey.where([&](const CheckReport& report) { return is_cut_off(survey, report); });
  if (cut_off.empty()) return network_in_order(survey);
  const auto reasons = survey.variants(
      [&](const CheckReport& report) { return is_cut_off(survey, report) ? describe_reach(report) : std::string(); });
  const auto& most_frequent = reasons.front();
  return failed("network", most_frequent.value, std::move(cut_off),
                std::string(hint_of(survey.report(most_frequent.ranks.front()))));
}

CheckRow port_row(const Survey& survey) {
  const auto number = std::to_string(survey.first().port);
  const auto port = cat({number, " on ", survey.layout().host_of(0)});
  const auto& trouble = survey.findings().port_trouble;
  if (trouble.empty()) return ok("port", cat({port, " is free for rank 0"}));
  return failed("port", cat({port, " is not free for rank 0: ", trouble}), {},
                cat({"find the program there with: ss -ltnp \"sport = :", number,
                     "\"; or choose another port: srun --bootstrap-port=N"}));
}

CheckRow clock_row(const Survey& survey) {
  if (survey.layout().node_count() == 1) return ok("clocks", "one node, one clock");
  std::uint64_t most = 0;
  for (const auto* const report : survey.reports())
    most = std::max(most, report->clock_skew_us + report->clock_error_us);
  // What the travel time of the question may hide is held in favour of the clock.
  auto wrong =
      survey.where([](const CheckReport& report) { return report.clock_skew_us > kMaxSkew + report.clock_error_us; });
  if (wrong.empty()) return ok("clocks", cat({"within ", milliseconds(most), " of rank 0's"}));
  return warning("clocks", cat({"up to ", milliseconds(most), " from rank 0's"}), std::move(wrong),
                 "synchronize the clocks, since timestamps of these nodes do not match; see chronyc tracking");
}

}  // namespace bootstrap::check
