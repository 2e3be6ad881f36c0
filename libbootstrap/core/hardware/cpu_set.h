// A set of CPUs by the numbers that Linux gives them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bootstrap {

class CpuSet {
 public:
  static constexpr std::size_t kMaxCpus = 8192;  // the most that Linux can be built for (CONFIG_NR_CPUS)

  // "0-3,8", as sysfs and taskset write it; the empty text is the empty set.
  static std::optional<CpuSet> parse_list(std::string_view text);

  void add(std::size_t cpu) { words_[cpu / kWordBits] |= Word{1} << cpu % kWordBits; }  // precondition: cpu < kMaxCpus
  bool empty() const { return *this == CpuSet(); }
  std::size_t count() const { return members().size(); }
  std::size_t first() const { return members().front(); }  // precondition: not empty
  std::vector<std::size_t> members() const;                // ascending

  CpuSet operator&(const CpuSet& other) const;
  CpuSet operator|(const CpuSet& other) const;
  bool is_within(const CpuSet& other) const { return (*this & other) == *this; }
  bool operator==(const CpuSet&) const = default;

  std::string to_list() const;  // what parse_list reads

 private:
  using Word = std::uint64_t;
  static constexpr std::size_t kWordBits = 64;

  std::array<Word, kMaxCpus / kWordBits> words_{};  // as in the kernel's masks
};

}  // namespace bootstrap
