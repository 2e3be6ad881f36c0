// The rows about the step as a whole: which ranks answer, whether their plans agree, and whether they can exchange
// values.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/util/text.h"
#include "tools/check/rows/rows.h"

namespace bootstrap::check {
namespace {

std::string_view who_set(SetBy set_by) {
  constexpr std::array<std::string_view, 3> kWho{"not set", "set by the plugin", "set by the preloaded library"};
  return kWho[static_cast<std::size_t>(set_by)];
}

CheckRow disagreement(const Survey& survey, std::vector<Rank> ranks) {
  const auto& first = survey.first();
  const auto& other = survey.report(ranks.front());
  const bool is_same_place = meeting_point(other) == meeting_point(first);
  auto text = is_same_place ? cat({"the number or the order of the ranks differs: ", count_of(other.size, "rank"),
                                   " here, ", std::to_string(first.size), " on rank 0"})
                            : cat({"MASTER_ADDR:MASTER_PORT is ", meeting_point(other), " here and ",
                                   meeting_point(first), " on rank 0"});
  return failed("plan", std::move(text), std::move(ranks),
                "give all ranks the same MASTER_ADDR, MASTER_PORT and SLURM_*; see slurm-bootstrap explain");
}

constexpr const char* kExchange = "exchange";

bool has_pmix(const Survey& survey) { return survey.first().has_pmix; }

std::string engine_text(const Survey& survey) {
  if (!has_pmix(survey)) return "over PMI-1";
  const auto clients = survey.variants(&CheckReport::pmix_client);
  const auto servers = survey.variants(&CheckReport::pmix_server);
  auto text = cat({"over PMIx, client ", clients.front().value});
  if (!servers.empty()) text += cat({", server ", servers.front().value});
  return text;
}

CheckRow exchanged_row(const Survey& survey) {
  std::uint64_t slowest = 0;
  for (const auto* const report : survey.reports()) slowest = std::max(slowest, report->exchange_us);
  auto without =
      survey.where([](const CheckReport& report) { return !report.has_exchanged || !report.exchange_trouble.empty(); });
  const auto engine = engine_text(survey);
  if (without.empty()) return ok(kExchange, cat({engine, ": ", milliseconds(slowest)}));
  const auto troubles = survey.variants(&CheckReport::exchange_trouble);
  auto trouble = troubles.empty() ? std::string("no report of the result") : troubles.front().value;
  if (survey.where(&CheckReport::lacks_exchange).size() == survey.reports().size()) {
    return absent(kExchange, std::move(trouble));
  }
  return failed(kExchange, cat({engine, ", failed: ", trouble}), std::move(without));
}

}  // namespace

std::string meeting_point(const CheckReport& report) { return cat({report.address, ":", std::to_string(report.port)}); }

bool plans_as(const CheckReport& report, const CheckReport& other) {
  return report.address == other.address && report.port == other.port && report.size == other.size &&
         report.layout == other.layout;
}

CheckRow plan_row(const Survey& survey) {
  const auto& first = survey.first();
  if (!ranks_without_plugin(survey).empty()) {
    return {"plan", CheckResult::kSkipped, "it differs where the plugin is missing", {}, {}};
  }
  auto others = survey.where([&](const CheckReport& report) { return !plans_as(report, first); });
  if (!others.empty()) return disagreement(survey, std::move(others));
  auto without = survey.where(std::not_fn(&CheckReport::has_plan));
  const auto troubles = survey.variants(&CheckReport::plan_trouble);
  if (!without.empty()) {
    const auto& trouble = survey.report(without.front()).plan_trouble;
    return failed("plan", trouble, std::move(without));
  }
  if (!troubles.empty()) {
    return warning("plan", troubles.front().value,
                   survey.where([](const CheckReport& report) { return !report.plan_trouble.empty(); }));
  }
  const auto setters = survey.variants([](const CheckReport& report) { return std::string(who_set(report.set_by)); });
  const auto all = survey.layout().size() == 1 ? std::string("one rank") : std::string("the same for all ranks");
  if (setters.size() > 1) {
    return warning("plan", cat({all, "; ", describe_variants(setters)}), odd_ranks(setters));
  }
  if (first.set_by != SetBy::kNobody) return ok("plan", cat({all, ", ", who_set(first.set_by)}));
  return warning("plan", cat({all, ", but not set: programs find no RANK and no MASTER_ADDR"}), {},
                 "use srun --bootstrap=on, or LD_PRELOAD=libbootstrap.so without the plugin; programs that call the "
                 "library need neither");
}

CheckRow ranks_row(const Survey& survey) {
  const auto& findings = survey.findings();
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < findings.reports.size(); ++rank) {
    if (!findings.reports[rank] && !findings.other_versions.contains(rank)) missing.push_back(rank);
  }
  const auto waited = milliseconds(findings.waited_ms * 1000);
  const auto rejected = findings.rejected == 0
                            ? std::string()
                            : cat({"; ", count_of(findings.rejected, "connection"), " of other programs rejected"});
  if (missing.empty()) {
    const auto all = findings.reports.size() == 1 ? std::string("one rank")
                                                  : cat({"all ", count_of(findings.reports.size(), "rank")});
    return ok("ranks", cat({all, " answered within ", waited, rejected}));
  }
  auto text = cat({std::to_string(missing.size()), " of ", count_of(findings.reports.size(), "rank"),
                   " did not answer within ", waited, rejected});
  return failed("ranks", std::move(text), std::move(missing),
                "they have not started, hang, or cannot reach rank 0; a rank that cannot reach it prints an error");
}

CheckRow exchange_row(const Survey& survey) {
  auto without = survey.where(std::not_fn(&CheckReport::has_pmix));
  const bool has_some = without.size() != survey.reports().size();
  if (has_some && !without.empty()) {
    return failed(kExchange, "only some ranks of this step have PMIx", std::move(without),
                  "keep PMIX_NAMESPACE and PMIX_RANK in the environment of these ranks");
  }
  auto unusable = survey.where([](const CheckReport& report) { return report.pmix_client.empty(); });
  if (has_some && !unusable.empty()) {
    const auto reason = survey.report(unusable.front()).pmix_trouble;
    return warning(kExchange, cat({"the step has PMIx, but ", reason}), std::move(unusable));
  }
  if (survey.findings().has_exchanged) return exchanged_row(survey);
  if (survey.layout().size() == 1) return ok(kExchange, "one rank needs none");
  const char* const why = survey.findings().leaves_exchange ? "; the program may use it" : "; it needs all ranks";
  return {kExchange, CheckResult::kSkipped, cat({engine_text(survey), why}), {}, {}};
}

}  // namespace bootstrap::check
