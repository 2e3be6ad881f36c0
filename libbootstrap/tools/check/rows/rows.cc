// From the findings of a check to its table: which rows there are, and what they have in common.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/rows/rows.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/step/step_id.h"
#include "core/util/text.h"

namespace bootstrap {
namespace check {
namespace {

constexpr std::size_t kMaxVariantsShown = 3;

// `value` in tenths of a unit: "11.7", and "12" without the tenths from 10 on.
std::string tenths(std::uint64_t value) {
  if (value >= 100 || value % 10 == 0) return std::to_string((value + 5) / 10);
  return cat({std::to_string(value / 10), ".", std::to_string(value % 10)});
}

}  // namespace

Survey::Survey(const CheckFindings& findings) : findings_(findings) {
  for (const auto& report : findings.reports) {
    if (report) reports_.push_back(&*report);
  }
}

std::vector<Variant> Survey::tally(const std::vector<std::string>& values) const {
  std::vector<Variant> found;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].empty()) continue;
    auto same = std::find_if(found.begin(), found.end(), [&](const Variant& one) { return one.value == values[i]; });
    if (same == found.end()) same = found.insert(found.end(), {values[i], {}});
    same->ranks.push_back(reports_[i]->rank);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Variant& one, const Variant& other) { return one.ranks.size() > other.ranks.size(); });
  return found;
}

std::string describe_variants(const std::vector<Variant>& variants, std::string_view noun) {
  std::string text;
  const auto shown = std::min(variants.size(), kMaxVariantsShown);
  for (std::size_t i = 1; i < shown; ++i) {
    text += cat({variants[i].value, " on ", counted(variants[i].ranks.size(), noun), ", "});
  }
  if (shown < variants.size()) text += cat({std::to_string(variants.size() - shown), " more, "});
  return cat({text, variants.front().value, " on the ", variants.front().ranks.size() == 1 ? "other" : "others"});
}

std::vector<Rank> on_same_nodes(const Survey& survey, const std::vector<Rank>& ranks) {
  std::set<std::uint32_t> nodes;
  for (const auto rank : ranks) nodes.insert(survey.layout().place(rank).node);
  return survey.where(
      [&](const CheckReport& report) { return nodes.contains(survey.layout().place(report.rank).node); });
}

std::vector<Rank> odd_ranks(const std::vector<Variant>& variants) {
  std::vector<Rank> ranks;
  for (std::size_t i = 1; i < variants.size(); ++i) {
    ranks.insert(ranks.end(), variants[i].ranks.begin(), variants[i].ranks.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

CheckRow ok(std::string_view name, std::string text) { return {name, CheckResult::kOk, std::move(text), {}, {}}; }

CheckRow absent(std::string_view name, std::string text) {
  return {name, CheckResult::kAbsent, std::move(text), {}, {}};
}

CheckRow warning(std::string_view name, std::string text, std::vector<Rank> ranks, std::string hint) {
  return {name, CheckResult::kWarning, std::move(text), std::move(ranks), std::move(hint)};
}

CheckRow failed(std::string_view name, std::string text, std::vector<Rank> ranks, std::string hint) {
  return {name, CheckResult::kFailed, std::move(text), std::move(ranks), std::move(hint)};
}

std::string milliseconds(std::uint64_t microseconds) {
  if (microseconds >= 1'000'000) return tenths(microseconds / 100'000) + " s";
  if (microseconds >= 1000) return tenths(microseconds / 100) + " ms";
  const auto hundredths = std::max<std::uint64_t>(microseconds / 10, 1);
  return cat({"0.", hundredths < 10 ? "0" : "", std::to_string(hundredths), " ms"});
}

std::string amount(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits{" KiB", " MiB", " GiB", " TiB", " PiB"};
  std::size_t unit = 0;
  auto kibibytes = bytes / 1024;
  auto in_tenths = kibibytes * 10;
  while (in_tenths >= 10240 && unit + 1 < kUnits.size()) {
    in_tenths = kibibytes * 10 / 1024;
    kibibytes /= 1024;
    ++unit;
  }
  return cat({tenths(in_tenths), kUnits[unit]});
}

}  // namespace check

CheckTable judge_step(const CheckFindings& findings) {
  using Row = CheckRow (*)(const check::Survey&);
  constexpr std::array<Row, 16> kRows{
      check::version_row, check::plan_row,   check::ranks_row,         check::network_row,
      check::port_row,    check::clock_row,  check::exchange_row,      check::framework_row,
      check::nccl_row,    check::driver_row, check::gpu_row,           check::peer_row,
      check::cpu_row,     check::shm_row,    check::locked_memory_row, check::system_row};
  const check::Survey survey(findings);
  CheckTable table;
  table.id = findings.id;
  table.layout = findings.layout;
  table.title = cat({step_name(findings.id), ": ", counted(findings.layout.size(), "rank"), " on ",
                     counted(findings.layout.node_count(), "node")});
  if (!survey.first().address.empty()) {
    table.title += cat({", rendezvous at ", survey.first().address, ":", std::to_string(survey.first().port)});
  }
  for (const auto row : kRows) {
    auto made = row(survey);
    if (!made.text.empty()) table.rows.push_back(std::move(made));
  }
  return table;
}

}  // namespace bootstrap
