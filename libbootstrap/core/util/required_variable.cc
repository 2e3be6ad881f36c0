// Variables that must be there, or the sentence that says which is not.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/required_variable.h"

#include "core/util/text.h"

namespace bootstrap {

Result<std::string_view> require(const Environment& environment, std::string_view name) {
  const auto value = environment.get(name);
  if (!value) {
    return fail(ErrorCode::kMissing,
                cat({name, " is not set, so this is not a task of a Slurm step; start it with srun"}));
  }
  if (value->size() > Environment::kMaxValue) return fail(ErrorCode::kLimit, cat({name, " is longer than 64 KiB"}));
  return *value;
}

Result<std::uint32_t> require_number(const Environment& environment, std::string_view name) {
  const auto text = require(environment, name);
  if (!text) return fail(text.error());
  const auto number = parse_unsigned(*text, UINT32_MAX);
  if (!number) return fail(ErrorCode::kInvalid, cat({name, "=", quoted(*text), " is not a number"}));
  return static_cast<std::uint32_t>(*number);
}

}  // namespace bootstrap
