// A process environment as a value: looked up, changed and compared without touching the process.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/environment.h"

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

void Environment::set(std::string_view name, std::string_view value) {
  values_.insert_or_assign(std::string(name), std::string(value));
}

void Environment::unset(std::string_view name) {
  const auto found = values_.find(name);
  if (found != values_.end()) values_.erase(found);
}

}  // namespace bootstrap
