// The rows about the step as a whole: which ranks answer, whether their plans agree, how they reach rank 0 and each
// other.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "core/util/text.h"
#include "tools/check/check_table.h"

namespace bootstrap {
namespace {

// `value` in tenths of a unit: "11.7", and "12" without the tenths from 10 on.
std::string tenths(std::uint64_t value) {
  if (value >= 100 || value % 10 == 0) return std::to_string((value + 5) / 10);
  return cat({std::to_string(value / 10), ".", std::to_string(value % 10)});
}

// "0.31 ms", "12 ms", "1.5 s".
std::string time_text(std::uint64_t microseconds) {
  if (microseconds >= 1'000'000) return tenths(microseconds / 100'000) + " s";
  if (microseconds >= 1000) return tenths(microseconds / 100) + " ms";
  const auto hundredths = std::max<std::uint64_t>(microseconds / 10, 1);
  return cat({"0.", hundredths < 10 ? "0" : "", std::to_string(hundredths), " ms"});
}

std::string_view set_by_text(SetBy set_by) {
  if (set_by == SetBy::kPlugin) return "set by the plugin";
  return set_by == SetBy::kPreload ? "set by the preloaded library" : "not set";
}

// "node001:29500"
std::string meeting_point(const CheckReport& report) { return cat({report.address, ":", std::to_string(report.port)}); }

// The same place, and the same ranks in that order.
bool plans_as(const CheckReport& report, const CheckReport& other) {
  return report.address == other.address && report.port == other.port && report.size == other.size &&
         report.layout == other.layout;
}

CheckRow disagreement(const CheckFindings& step, std::vector<Rank> ranks) {
  const auto& first = step.first();
  const auto& other = step.report(ranks.front());
  const bool is_same_place = meeting_point(other) == meeting_point(first);
  auto text = is_same_place ? cat({"the number or the order of the ranks differs: ", counted(other.size, "rank"),
                                   " here, ", std::to_string(first.size), " on rank 0"})
                            : cat({"MASTER_ADDR:MASTER_PORT is ", meeting_point(other), " here and ",
                                   meeting_point(first), " on rank 0"});
  return failed(std::move(text), std::move(ranks),
                "give all ranks the same MASTER_ADDR, MASTER_PORT and SLURM_*; see slurm-bootstrap explain");
}

// The hosts of these ranks: "node002", or "node002 and 3 more nodes".
std::string hosts_of(const CheckFindings& step, const std::vector<Rank>& ranks) {
  std::set<std::uint32_t> nodes;
  for (const auto rank : ranks) nodes.insert(step.layout.place(rank).node);
  const auto& first = step.layout.host_of(ranks.front());
  return nodes.size() == 1 ? first : cat({first, " and ", counted(nodes.size() - 1, "more node")});
}

// A task has all of our variables or none. Without a text: no task lacks them, or the step is not set up.
CheckRow unset_row(const CheckFindings& step) {
  auto unread = step.where([](auto& report) { return report.set_by == SetBy::kUnread; });
  if (!unread.empty()) {
    auto text = cat({"the plugin is not loaded on ", hosts_of(step, unread),
                     ": srun set the step up, and these tasks have none of its variables"});
    return failed(std::move(text), std::move(unread), "see there: slurm-bootstrap check --local");
  }
  const bool is_set = step.any([](auto& report) { return report.set_by == SetBy::kPlugin; });
  auto unset = step.where(
      [&](auto& report) { return report.set_by == SetBy::kRead || (is_set && report.set_by == SetBy::kNothing); });
  if (unset.empty()) return {};
  auto text = cat({"the plugin's task_init did not run on ", hosts_of(step, unset),
                   ", or reported there why it set nothing: these tasks have none of its variables"});
  return failed(std::move(text), std::move(unset),
                "without such a report another Slurm plugin starts the program first; move its line in "
                "plugstack.conf behind that of spank_bootstrap.so");
}

bool is_moved(const CheckReport& report) {
  return has(report.changed, "MASTER_ADDR") || has(report.changed, "MASTER_PORT");
}

// RANK must be the task's own. The step may work with other values of the rest, if all tasks have the same.
CheckRow changed_row(const CheckFindings& step) {
  auto changed = step.where([](auto& report) { return !report.changed.empty(); });
  if (changed.empty()) return {};
  const auto differs = [&](auto& report) { return !plans_as(report, step.first()); };
  const auto is_wrong = [&](auto& report) {
    return has(report.changed, "RANK") || has(report.changed, "WORLD_SIZE") ||
           (is_moved(report) && (report.port == 0 || step.any(differs)));
  };
  const auto names = step.variants([](auto& report) { return join(report.changed, ", "); });
  auto text =
      cat({"another plugin, a TaskProlog or a script changed ", names.front().value, " after this plugin had set it"});
  auto row = warning(std::move(text), std::move(changed),
                     "in plugstack.conf move the line of spank_bootstrap.so behind that plugin; take these variables "
                     "out of prologs and scripts");
  if (step.any(is_wrong)) row.result = CheckResult::kFailed;
  return row;
}

std::string engine_text(const CheckFindings& step) {
  if (!step.first().has_pmix) return "over PMI-1";
  const auto clients = step.variants(&CheckReport::pmix_client);
  const auto servers = step.variants(&CheckReport::pmix_server);
  auto text = cat({"over PMIx, client ", clients.front().value});
  if (!servers.empty()) text += cat({", server ", servers.front().value});
  return text;
}

CheckRow exchanged_row(const CheckFindings& step) {
  auto without = step.where([](auto& report) { return !report.has_exchanged || !report.exchange_trouble.empty(); });
  const auto engine = engine_text(step);
  if (without.empty()) return ok(cat({engine, ": ", time_text(step.range(&CheckReport::exchange_us).second)}));
  const auto troubles = step.variants(&CheckReport::exchange_trouble);
  auto trouble = troubles.empty() ? std::string("no report of the result") : troubles.front().value;
  if (!step.any(std::not_fn(&CheckReport::lacks_exchange))) return absent(std::move(trouble));
  return failed(cat({engine, ", failed: ", trouble}), std::move(without));
}

// A smaller difference does not affect timestamps in logs or timeouts in seconds.
constexpr std::uint64_t kMaxSkew = 100'000;  // microseconds

bool is_loopback(const CheckReport& report) { return report.target.starts_with("127.") || report.target == "::1"; }

constexpr std::string_view kWrongAddress = "set MASTER_ADDR to an address of the host of rank 0";

// By Reach: the words before and after the place that was not reached, and the advice.
struct ReachWords {
  std::string_view before;
  std::string_view after;
  std::string_view hint;
};
constexpr std::array<ReachWords, 6> kReachWords{{
    {"", "", kWrongAddress},
    {"the name ", " does not resolve",
     "correct /etc/hosts or DNS on these nodes, or use srun --bootstrap-addr=NAME, or =%a for Slurm's own address"},
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
  if (is_moved(report)) return "this is not the address that the plugin set: see the row of the plan";
  if (!is_loopback(report)) return words_of(report).hint;
  return "this is the loopback address of each node; set MASTER_ADDR to a name that other nodes resolve";
}

// The row of the port reports a port that rank 0 did not get, and the row of the plan a rank with another port.
bool is_cut_off(const CheckFindings& step, const CheckReport& report) {
  if (report.reach == Reach::kReached || !plans_as(report, step.first())) return false;
  const bool is_of_port = report.reach == Reach::kRefused || report.reach == Reach::kForeign;
  return step.port_trouble.empty() || !is_of_port;
}

CheckRow network_in_order(const CheckFindings& step) {
  const auto& layout = step.layout;
  const auto& first = step.first();
  auto text = cat({first.address, " is ", first.target});
  if (layout.node_count() > 1 && is_loopback(first) && std::getenv("GLOO_SOCKET_IFNAME") == nullptr) {
    return warning(cat({text, " on its own node; Gloo would send that address to other nodes"}), {},
                   "remove the name from that line of /etc/hosts, or set GLOO_SOCKET_IFNAME");
  }
  const auto home = layout.place(0).node;
  const auto interfaces = step.variants(
      [&](auto& report) { return layout.place(report.rank).node == home ? std::string() : report.interface; });
  std::string names;
  for (const auto& variant : interfaces) names += cat({names.empty() ? " (" : " and ", variant.value});
  if (!names.empty()) text += cat({names, ")"});
  if (layout.size() > 1) text += cat({", round trip ", time_text(step.range(&CheckReport::round_trip_us).second)});
  return ok(std::move(text));
}

}  // namespace

CheckRow plan_row(const CheckFindings& step) {
  const auto& first = step.first();
  if (!ranks_without_plugin(step).empty()) return skipped("it differs where the plugin is missing");
  for (const auto& judge : {unset_row, changed_row}) {
    if (auto row = judge(step); !row.text.empty()) return row;
  }
  auto portless = step.where([](auto& report) { return report.port == 0; });
  if (!portless.empty()) {
    const auto& trouble = step.report(portless.front()).plan_trouble;
    return failed(trouble, std::move(portless));
  }
  auto others = step.where([&](auto& report) { return !plans_as(report, first); });
  if (!others.empty()) return disagreement(step, std::move(others));
  const auto troubles = step.variants(&CheckReport::plan_trouble);
  if (!troubles.empty()) {
    return warning(troubles.front().value, step.where([](auto& report) { return !report.plan_trouble.empty(); }));
  }
  const auto setters = step.variants([](auto& report) { return std::string(set_by_text(report.set_by)); });
  const auto all = step.layout.size() == 1 ? std::string("one rank") : std::string("the same for all ranks");
  if (setters.size() > 1) return warning(cat({all, "; ", describe_variants(setters)}), odd_ranks(setters));
  if (first.set_by != SetBy::kNothing) return ok(cat({all, ", ", set_by_text(first.set_by)}));
  return warning(cat({all, ", but not set: programs find no RANK and no MASTER_ADDR"}), {},
                 "use srun --bootstrap=on, or LD_PRELOAD=libbootstrap.so without the plugin; programs that call the "
                 "library need neither");
}

CheckRow ranks_row(const CheckFindings& step) {
  auto missing = missing_ranks(step);
  const auto waited = time_text(step.waited_ms * 1000);
  if (missing.empty()) {
    const auto all =
        step.reports.size() == 1 ? std::string("one rank") : cat({"all ", counted(step.reports.size(), "rank")});
    return ok(cat({all, " answered within ", waited}));
  }
  auto text = cat({std::to_string(missing.size()), " of ", counted(step.reports.size(), "rank"),
                   " did not answer within ", waited});
  return failed(std::move(text), std::move(missing),
                "they have not started, hang, or cannot reach rank 0; a rank that cannot reach it prints an error");
}

CheckRow exchange_row(const CheckFindings& step) {
  auto without = step.where(std::not_fn(&CheckReport::has_pmix));
  const bool has_some = step.any(&CheckReport::has_pmix);
  if (has_some && !without.empty()) {
    return failed("only some ranks of this step have PMIx", std::move(without),
                  "keep PMIX_NAMESPACE and PMIX_RANK in the environment of these ranks");
  }
  auto unusable = step.where([](auto& report) { return report.pmix_client.empty(); });
  if (has_some && !unusable.empty()) {
    const auto reason = step.report(unusable.front()).pmix_trouble;
    return warning(cat({"the step has PMIx, but ", reason}), std::move(unusable));
  }
  if (step.has_exchanged) return exchanged_row(step);
  if (step.layout.size() == 1) return ok("one rank needs none");
  const char* const why = step.leaves_exchange ? "; the program may use it" : "; it needs all ranks";
  return skipped(cat({engine_text(step), why}));
}

CheckRow network_row(const CheckFindings& step) {
  auto cut_off = step.where([&](auto& report) { return is_cut_off(step, report); });
  if (cut_off.empty()) return network_in_order(step);
  const auto reasons =
      step.variants([&](auto& report) { return is_cut_off(step, report) ? describe_reach(report) : std::string(); });
  const auto& most_frequent = reasons.front();
  return failed(most_frequent.value, std::move(cut_off),
                std::string(hint_of(step.report(most_frequent.ranks.front()))));
}

CheckRow port_row(const CheckFindings& step) {
  const auto number = std::to_string(step.first().port);
  const auto port = cat({number, " on ", step.layout.host_of(0)});
  const auto& trouble = step.port_trouble;
  if (trouble.empty()) return ok(cat({port, " is free for rank 0"}));
  return failed(cat({port, " is not free for rank 0: ", trouble}), {},
                cat({"find the program there with: ss -ltnp \"sport = :", number,
                     "\"; or choose another port: srun --bootstrap-port=N"}));
}

CheckRow clock_row(const CheckFindings& step) {
  if (step.layout.node_count() == 1) return ok("one node, one clock");
  const auto most = step.range([](auto& report) { return report.clock_skew_us + report.clock_error_us; }).second;
  // A difference within the error of the measurement is no fault of the clock.
  auto wrong = step.where([](auto& report) { return report.clock_skew_us > kMaxSkew + report.clock_error_us; });
  if (wrong.empty()) return ok(cat({"within ", time_text(most), " of rank 0's"}));
  return warning(cat({"up to ", time_text(most), " from rank 0's"}), std::move(wrong),
                 "synchronize the clocks, since timestamps of these nodes do not match; see chronyc tracking");
}

}  // namespace bootstrap
