// Numbers with a fraction in records. A file of its own: they need libm, which libbootstrap does not link.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>

#include "core/util/records.h"

namespace bootstrap {

std::string write_field(double value) {
  std::array<char, 64> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

bool read_field(std::string_view text, double& value) {
  const auto* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end && !text.empty();
}

}  // namespace bootstrap
