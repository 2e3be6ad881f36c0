// A process environment as a value: looked up, changed and compared without touching the process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/util/result.h"

namespace bootstrap {

class Environment {
 public:
  // Longer values are never set: Linux accepts no entry "NAME=VALUE" of more than 131072 bytes (MAX_ARG_STRLEN), and
  // Slurm drops such a value without a message.
  static constexpr std::size_t kMaxValue = 65536;

  // An empty value counts as not set, as it does for PyTorch, Slurm and a shell's ${X:-}.
  std::optional<std::string_view> get(std::string_view name) const;
  std::optional<std::uint32_t> number(std::string_view name) const;  // also nullopt if the value is no number
  bool has(std::string_view name) const { return get(name).has_value(); }

  // For variables of Slurm that must be set. The error names the missing one.
  Result<std::string_view> require(std::string_view name) const;
  Result<std::uint32_t> require_number(std::string_view name) const;

  void set(std::string_view name, std::string_view value);
  void unset(std::string_view name);

  // For the entries of a process's environment: the first of equal names counts, as in getenv. A refused variable is
  // present but counts as not set; core/settings/variables.h has the limits.
  void add(std::string_view name, std::string_view value);
  void refuse(std::string_view name);

  // Also true for an empty value and for a refused one.
  bool is_there(std::string_view name) const;
  bool is_refused(std::string_view name) const { return refused_.contains(name); }
  const std::set<std::string, std::less<>>& refused() const { return refused_; }

  // The first few names that begin with SLURM_BOOTSTRAP_ and that the project does not know.
  void add_unknown(std::string_view name);
  const std::set<std::string, std::less<>>& unknown() const { return unknown_; }

  const std::map<std::string, std::string, std::less<>>& all() const { return values_; }
  bool operator==(const Environment&) const = default;

 private:
  std::map<std::string, std::string, std::less<>> values_;
  std::set<std::string, std::less<>> refused_;
  std::set<std::string, std::less<>> unknown_;
};

}  // namespace bootstrap
