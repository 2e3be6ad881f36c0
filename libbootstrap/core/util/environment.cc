// A process environment as a value: looked up, changed and compared without touching the process.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/environment.h"

#include "core/util/text.h"

namespace bootstrap {

std::optional<std::string_view> Environment::get(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<std::uint32_t> Environment::number(std::string_view name) const {
  return parse_unsigned<std::uint32_t>(get(name).value_or(""));
}

Result<std::string_view> Environment::require(std::string_view name) const {
  if (is_refused(name)) return fail(ErrorCode::kLimit, cat({name, " is longer than the plugin accepts"}));
  const auto value = get(name);
  if (value) return *value;
  const auto where = has("SLURM_JOB_ID") ? "a batch script, like the shell of salloc, is one process and no step"
                                         : "this process is not a task of a Slurm step";
  return fail(ErrorCode::kMissing, cat({name, " is not set: ", where, "; start the program with srun"}));
}

Result<std::uint32_t> Environment::require_number(std::string_view name) const {
  const auto text = require(name);
  if (!text) return fail(text.error());
  const auto value = number(name);
  if (!value) return fail(ErrorCode::kInvalid, cat({name, "=", quote(*text), " is not a number"}));
  return *value;
}

void Environment::set(std::string_view name, std::string_view value) {
  values_.insert_or_assign(std::string(name), std::string(value));
}

void Environment::unset(std::string_view name) {
  if (const auto found = values_.find(name); found != values_.end()) values_.erase(found);
  if (const auto found = refused_.find(name); found != refused_.end()) refused_.erase(found);
}

void Environment::add(std::string_view name, std::string_view value) {
  if (!is_there(name)) values_.emplace(name, value);
}

void Environment::refuse(std::string_view name) {
  if (!is_there(name)) refused_.emplace(name);
}

void Environment::add_unknown(std::string_view name) {
  constexpr std::size_t kMostUnknown = 4;
  constexpr std::size_t kLongest = 64;
  if (unknown_.size() < kMostUnknown) unknown_.emplace(name.substr(0, kLongest));
}

bool Environment::is_there(std::string_view name) const {
  return values_.find(name) != values_.end() || is_refused(name);
}

}  // namespace bootstrap
