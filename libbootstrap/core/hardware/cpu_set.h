// A set of CPUs by the numbers that Linux gives them, and the two ways in which it is written.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/util/result.h"

namespace bootstrap {

class CpuSet {
 public:
  // Above what Linux can be built for (CONFIG_NR_CPUS is at most 8192 on x86): a larger number is garbage.
  static constexpr std::size_t kMaxCpus = 16384;

  // "0-3,8", as sysfs and taskset write it; the empty text is the empty set.
  static Result<CpuSet> parse_list(std::string_view text);
  // Hexadecimal, the lowest CPU last: "0xff" or "ff", as Slurm writes it.
  static Result<CpuSet> parse_mask(std::string_view text);

  void add(std::size_t cpu);  // precondition: cpu < kMaxCpus
  bool has(std::size_t cpu) const;
  bool empty() const { return words_.empty(); }
  std::size_t count() const;
  std::vector<std::size_t> members() const;  // ascending

  CpuSet operator&(const CpuSet& other) const;
  CpuSet operator|(const CpuSet& other) const;
  CpuSet operator-(const CpuSet& other) const;
  bool is_within(const CpuSet& other) const { return (*this & other) == *this; }
  bool operator==(const CpuSet&) const = default;

  std::string to_list() const;  // what parse_list reads

 private:
  void add_range(std::size_t first, std::size_t last);
  void trim();

  std::vector<std::uint64_t> words_;  // no zero word at the end, so that equal sets are equal
};

}  // namespace bootstrap
