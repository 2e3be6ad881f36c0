// A set of CPUs by the numbers that Linux gives them.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/cpu_set.h"

#include <bit>

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
  for (std::size_t i = 0; i < words_.size(); ++i) {
    for (auto rest = words_[i]; rest != 0; rest &= rest - 1) {
      cpus.push_back(i * kWordBits + static_cast<std::size_t>(std::countr_zero(rest)));
    }
  }
  return cpus;
}

CpuSet CpuSet::operator&(const CpuSet& other) const {
  auto both = *this;
  for (std::size_t i = 0; i < words_.size(); ++i) both.words_[i] &= other.words_[i];
  return both;
}

CpuSet CpuSet::operator|(const CpuSet& other) const {
  auto either = *this;
  for (std::size_t i = 0; i < words_.size(); ++i) either.words_[i] |= other.words_[i];
  return either;
}

std::string CpuSet::to_list() const { return write_ranges(members()); }

}  // namespace bootstrap
