// A set of CPUs by the numbers that Linux gives them.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/cpu_set.h"

#include "core/util/text.h"

namespace bootstrap {

std::optional<CpuSet> CpuSet::parse_list(std::string_view text) {
  CpuSet set;
  if (text.empty()) return set;
  for (const auto item : split(text, ',')) {
    const auto dash = item.find('-');
    const auto first = parse_unsigned(item.substr(0, dash), kMaxCpus - 1);
    const auto last = dash == std::string_view::npos ? first : parse_unsigned(item.substr(dash + 1), kMaxCpus - 1);
    if (!first || !last || *first > *last) return std::nullopt;
    for (auto cpu = *first; cpu <= *last; ++cpu) set.add(cpu);
  }
  return set;
}

std::vector<std::size_t> CpuSet::members() const {
  std::vector<std::size_t> cpus;
  for (auto cpu = cpus_._Find_first(); cpu < kMaxCpus; cpu = cpus_._Find_next(cpu)) cpus.push_back(cpu);
  return cpus;
}

std::string CpuSet::to_list() const { return write_ranges(members()); }

}  // namespace bootstrap
