// Option structures of the C interface, as programs built against other versions of the header hand them over.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/util/result.h"
#include "core/util/text.h"

namespace bootstrap::api {

// `struct_size`, the first member, says how much of *given there is: members that an older header did not have keep
// their defaults, and those that only a newer header has must be zero. NULL means the defaults.
template <class Options>
Result<Options> read_options(const Options* given, Options defaults, const char* name) {
  if (given == nullptr) return defaults;
  const std::size_t size = given->struct_size;
  constexpr std::size_t kMost = 4096;
  if (size < sizeof given->struct_size || size > kMost) {
    return fail(ErrorCode::kInvalid, cat({name, ".struct_size is ", std::to_string(size), "; start from ", name,
                                          " = the _INIT macro of bootstrap.h"}));
  }
  const char* bytes = reinterpret_cast<const char*>(given);
  for (std::size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) {
      return fail(ErrorCode::kUnsupported,
                  cat({name,
                       " has a member that this version of libbootstrap does not know; install a newer "
                       "one, or leave the member zero"}));
    }
  }
  std::memcpy(&defaults, given, std::min(size, sizeof(Options)));
  return defaults;
}

}  // namespace bootstrap::api
