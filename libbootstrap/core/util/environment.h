// A process environment as a value: looked up, changed and compared without touching the process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/util/result.h"

namespace bootstrap {

class Environment {
 public:
  // Longer values cannot be handed to a program (Linux' MAX_ARG_STRLEN is 131072 bytes for "NAME=VALUE"), and Slurm
  // drops them without a word, so a value near that length is never trusted.
  static constexpr std::size_t kMaxValue = 65536;

  Environment() = default;

  // `entries` is a NULL-terminated array of "NAME=VALUE", or NULL. As for getenv, the first of equal names counts;
  // entries without '=' are passed over.
  static Environment from_entries(const char* const* entries);

  // The empty value counts as not set: that is how PyTorch, Slurm and shells' ${X:-} read it.
  std::optional<std::string_view> get(std::string_view name) const;
  std::optional<std::uint32_t> number(std::string_view name) const;  // nothing, too, where the value is none
  bool has(std::string_view name) const { return get(name).has_value(); }

  // Variables of Slurm that must be there, or the sentence that says which is not.
  Result<std::string_view> require(std::string_view name) const;
  Result<std::uint32_t> require_number(std::string_view name) const;

  void set(std::string_view name, std::string_view value);
  void unset(std::string_view name);

  const std::map<std::string, std::string, std::less<>>& all() const { return values_; }
  bool operator==(const Environment&) const = default;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace bootstrap
