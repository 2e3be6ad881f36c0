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

  // The empty value counts as not set: that is how PyTorch, Slurm and shells' ${X:-} read it.
  std::optional<std::string_view> get(std::string_view name) const;
  std::optional<std::uint32_t> number(std::string_view name) const;  // nothing, too, where the value is none
  bool has(std::string_view name) const { return get(name).has_value(); }

  // Variables of Slurm that must be there, or the sentence that names the missing one.
  Result<std::string_view> require(std::string_view name) const;
  Result<std::uint32_t> require_number(std::string_view name) const;

  void set(std::string_view name, std::string_view value);
  void unset(std::string_view name);

  // As the two above, for the entries of a process: the first of equal names counts, as for getenv. A refused variable
  // is there and counts as not set: core/settings/variables.h has the limits.
  void add(std::string_view name, std::string_view value);
  void refuse(std::string_view name);

  // Also true for an empty value and for a refused one.
  bool is_there(std::string_view name) const;
  bool is_refused(std::string_view name) const { return refused_.contains(name); }
  const std::set<std::string, std::less<>>& refused() const { return refused_; }

  // Names that begin as ours do, and that the project does not know: the first few.
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
