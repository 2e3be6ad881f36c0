// The rows of a check's table, each made from the reports of all ranks; and what the rows have in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/check/check_table.h"

namespace bootstrap::check {

// A value and the ranks that reported it, ascending.
struct Variant {
  std::string value;
  std::vector<Rank> ranks;
};

// The reports that rank 0 received.
class Survey {
 public:
  explicit Survey(const CheckFindings& findings);

  const CheckFindings& findings() const { return findings_; }
  const Layout& layout() const { return findings_.layout; }
  const std::vector<const CheckReport*>& reports() const { return reports_; }  // in order of rank
  const CheckReport& first() const { return *reports_.front(); }
  const CheckReport& report(Rank rank) const { return *findings_.reports[rank]; }  // precondition: received
  std::uint32_t node_of(const CheckReport& report) const { return layout().place(report.rank).node; }

  template <class Predicate>
  std::vector<Rank> where(Predicate holds) const {
    std::vector<Rank> ranks;
    for (const auto* const report : reports_) {
      if (std::invoke(holds, *report)) ranks.push_back(report->rank);
    }
    return ranks;
  }

  template <class Predicate>
  bool any(Predicate holds) const {
    return !where(holds).empty();
  }

  // The different values of a text of the reports; the most frequent first, of equally frequent ones that of the lower
  // rank. Reports without such a text are left out.
  template <class ValueOf>
  std::vector<Variant> variants(ValueOf value_of) const {
    std::vector<std::string> values;
    for (const auto* const report : reports_) values.push_back(std::invoke(value_of, *report));
    return tally(values);
  }

  // The least and the greatest of a number of the reports.
  template <class ValueOf>
  std::pair<std::uint64_t, std::uint64_t> range(ValueOf value_of) const {
    std::pair<std::uint64_t, std::uint64_t> found{UINT64_MAX, 0};
    for (const auto* const report : reports_) {
      const std::uint64_t value = std::invoke(value_of, *report);
      found = {std::min(found.first, value), std::max(found.second, value)};
    }
    return found;
  }

 private:
  std::vector<Variant> tally(const std::vector<std::string>& values) const;

  const CheckFindings& findings_;
  std::vector<const CheckReport*> reports_;
};

// "A on 2 ranks, B on the others", and the ranks that do not have the most frequent value. Precondition: at least two.
std::string describe_variants(const std::vector<Variant>& variants, std::string_view noun = "rank");
std::vector<Rank> odd_ranks(const std::vector<Variant>& variants);
// Returns all ranks on the nodes of these ranks.
std::vector<Rank> on_same_nodes(const Survey& survey, const std::vector<Rank>& ranks);

// Rows without their names.
CheckRow ok(std::string text);
CheckRow absent(std::string text);
CheckRow skipped(std::string text);
CheckRow warning(std::string text, std::vector<Rank> ranks = {}, std::string hint = {});
CheckRow failed(std::string text, std::vector<Rank> ranks = {}, std::string hint = {});
void append_row(CheckTable& table, std::string_view name, CheckRow row);  // none without a text

std::string milliseconds(std::uint64_t microseconds);  // "0.31 ms", "12 ms", "1.5 s"
std::string amount(std::uint64_t bytes);               // "8 MiB", "11 GiB"

// Returns the ranks on nodes without the plugin, if other nodes have it.
std::vector<Rank> ranks_without_plugin(const Survey& survey);

CheckRow version_row(const Survey& survey);
CheckRow framework_row(const Survey& survey);
CheckRow plan_row(const Survey& survey);
CheckRow ranks_row(const Survey& survey);
CheckRow network_row(const Survey& survey);
CheckRow port_row(const Survey& survey);
CheckRow clock_row(const Survey& survey);
CheckRow exchange_row(const Survey& survey);
CheckRow nccl_row(const Survey& survey);
CheckRow driver_row(const Survey& survey);
CheckRow gpu_row(const Survey& survey);
CheckRow peer_row(const Survey& survey);
CheckRow cpu_row(const Survey& survey);
CheckRow near_row(const Survey& survey);  // none where no place of a GPU is known
CheckRow shm_row(const Survey& survey);
CheckRow locked_memory_row(const Survey& survey);
CheckRow system_row(const Survey& survey);

}  // namespace bootstrap::check
