// A set of CPUs by the numbers that Linux gives them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bootstrap {

class CpuSet {
 public:
  static constexpr std::size_t kMaxCpus = 8192;  // the most that Linux can be built for (CONFIG_NR_CPUS)

  CpuSet() = default;
  // "0-3,8", as sysfs and taskset write it; the empty text is the empty set.
  static std::optional<CpuSet> parse_list(std::string_view text);

  void add(std::size_t cpu) { cpus_.set(cpu); }  // precondition: cpu < kMaxCpus
  bool empty() const { return cpus_.none(); }
  std::size_t count() const { return cpus_.count(); }
  std::size_t first() const { return cpus_._Find_first(); }  // precondition: not empty
  std::vector<std::size_t> members() const;                  // ascending

  CpuSet operator&(const CpuSet& other) const { return CpuSet(cpus_ & other.cpus_); }
  CpuSet operator|(const CpuSet& other) const { return CpuSet(cpus_ | other.cpus_); }
  bool is_within(const CpuSet& other) const { return (*this & other) == *this; }
  bool operator==(const CpuSet&) const = default;

  std::string to_list() const;  // what parse_list reads

 private:
  using Bits = std::bitset<kMaxCpus>;

  explicit CpuSet(const Bits& cpus) : cpus_(cpus) {}

  Bits cpus_;
};

}  // namespace bootstrap
