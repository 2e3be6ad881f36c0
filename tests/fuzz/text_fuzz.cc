// The text functions against short, slow statements of what they should do.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/text.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "property.h"

namespace {

// Long arithmetic by hand: the value as decimal digits without leading zeros, compared as text.
std::optional<std::string> canonical_digits(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const auto first = std::min(text.find_first_not_of('0'), text.size() - 1);
  return std::string(text.substr(first));
}

void check_number(std::string_view text) {
  const auto digits = canonical_digits(text);
  const auto largest = std::to_string(std::numeric_limits<std::uint64_t>::max());
  const auto fits =
      digits && (digits->size() < largest.size() || (digits->size() == largest.size() && *digits <= largest));
  const auto number = bootstrap::parse_unsigned(text);
  check(number.has_value() == fits, "exactly the numbers of at most 64 bits are numbers");
  if (number) {
    check(std::to_string(*number) == *digits, "a number is what its digits say");
    check(bootstrap::parse_unsigned(text, *number) == number, "the largest allowed number is allowed");
    if (*number > 0) check(!bootstrap::parse_unsigned(text, *number - 1), "one above the largest is not");
  }
}

void check_split(std::string_view text, char separator) {
  const auto parts = bootstrap::split(text, separator);
  std::string joined;
  for (const auto part : parts) {
    check(part.find(separator) == std::string_view::npos, "no part holds the separator");
    joined = bootstrap::cat({joined, part, std::string_view(&separator, 1)});
  }
  joined.pop_back();
  check(joined == text, "the parts and separators make the text");
}

void check_trim(std::string_view text) {
  const auto inner = bootstrap::trim(text);
  check(bootstrap::trim(inner) == inner, "trim once is enough");
  check(text.find(inner) != std::string_view::npos, "trim only takes away");
  check(inner.empty() || (inner.front() != ' ' && inner.back() != '\t'), "no blank is left at an end");
}

void check_quoted(std::string_view text) {
  const auto shown = bootstrap::quote(text);
  check(shown.size() <= 4 * 80 + 5, "what is shown is short");
  check(std::all_of(shown.begin(), shown.end(), [](char c) { return c >= 0x20 && c < 0x7f; }), "and printable");
  check(shown.find('"', 1) == shown.size() - 1, "a quote in the text cannot end the quotation");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = as_text(data, size);
  check_number(text);
  for (const char separator : {',', ':', '\0'}) check_split(text, separator);
  check_trim(text);
  check_quoted(text);
  check(bootstrap::fingerprint(text) == bootstrap::fingerprint(std::string(text)),
        "a fingerprint depends on the text only");
  return 0;
}
