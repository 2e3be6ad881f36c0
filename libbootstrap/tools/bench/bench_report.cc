// What each rank of a bench tells the others, as text, and the sentences about those with trouble.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "core/step/rank_layout.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "tools/bench/bandwidth.h"
#include "tools/bench/bench_report.h"

namespace bootstrap {
namespace {

std::string place_of(const WrongValue& wrong) { return wrong.is_in_place ? "in place" : "out of place"; }

}  // namespace

std::optional<std::string> trouble_of(const Layout& layout, const std::vector<BenchFinding>& findings) {
  const bool somebody_knows = std::any_of(findings.begin(), findings.end(), [](const BenchFinding& finding) {
    return !finding.trouble.empty() && !finding.is_late;
  });
  const auto has_trouble = [=](const BenchFinding& finding) {
    return !finding.trouble.empty() && !(somebody_knows && finding.is_late);
  };
  const auto first = std::find_if(findings.begin(), findings.end(), has_trouble);
  if (first == findings.end()) return std::nullopt;
  const auto others = std::count_if(first + 1, findings.end(), has_trouble);
  const auto more = others == 0 ? std::string() : cat({" and ", std::to_string(others), " more"});
  return cat({describe_rank(layout, static_cast<Rank>(first - findings.begin())), more, ": ", first->trouble});
}

std::string wrong_text(const Layout& layout, std::uint64_t bytes, const std::vector<BenchFinding>& findings) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < findings.size(); ++rank) {
    if (findings[rank].wrong > 0) ranks.push_back(rank);
  }
  if (ranks.empty()) return "";
  const auto& one = findings[ranks.front()];
  return cat({"an all-reduce of ",
              bytes_text(bytes),
              " gave wrong sums on ",
              name_ranks(layout, ranks),
              ": ",
              std::to_string(one.wrong),
              one.wrong == 1 ? " value" : " values",
              " on rank ",
              std::to_string(ranks.front()),
              ", the first is number ",
              std::to_string(one.first.index),
              " of ",
              std::to_string(bytes / kFloatBytes),
              ", ",
              write_field(one.first.found),
              " where the sum is ",
              write_field(one.first.expected),
              " (",
              place_of(one.first),
              ")"});
}

}  // namespace bootstrap
