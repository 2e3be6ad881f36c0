// A process environment as a value: looked up, changed and compared without touching the process.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/environment.h"

#include "core/util/text.h"

namespace bootstrap {

Environment Environment::from_entries(const char* const* entries) {
  Environment environment;
  for (; entries != nullptr && *entries != nullptr; ++entries) {
    const std::string_view entry(*entries);
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    environment.values_.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

std::optional<std::string_view> Environment::get(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<std::uint32_t> Environment::number(std::string_view name) const {
  const auto value = parse_unsigned(get(name).value_or(""), UINT32_MAX);
  return value ? std::optional(static_cast<std::uint32_t>(*value)) : std::nullopt;
}

Result<std::string_view> Environment::require(std::string_view name) const {
  const auto value = get(name);
  if (!value) {
    return fail(ErrorCode::kMissing,
                cat({name, " is not set: this process is not a task of a Slurm step; start the program with srun"}));
  }
  if (value->size() > kMaxValue) return fail(ErrorCode::kLimit, cat({name, " is longer than 64 KiB"}));
  return *value;
}

Result<std::uint32_t> Environment::require_number(std::string_view name) const {
  const auto text = require(name);
  if (!text) return fail(text.error());
  const auto value = parse_unsigned(*text, UINT32_MAX);
  if (!value) return fail(ErrorCode::kInvalid, cat({name, "=", quoted(*text), " is not a number"}));
  return static_cast<std::uint32_t>(*value);
}

void Environment::set(std::string_view name, std::string_view value) {
  values_.insert_or_assign(std::string(name), std::string(value));
}

void Environment::unset(std::string_view name) {
  const auto found = values_.find(name);
  if (found != values_.end()) values_.erase(found);
}

}  // namespace bootstrap
