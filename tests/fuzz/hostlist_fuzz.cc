// Any bytes as a host list: refused with a readable reason, or read as a list within its limits.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/step/host_list.h"
#include "property.h"

namespace {

void check_message(const bootstrap::Error& error) {
  check(error.message.size() < 600, "a message is short, however long the text is");
  const auto printable = [](char c) { return c >= 0x20 && c < 0x7f; };
  check(std::all_of(error.message.begin(), error.message.end(), printable), "a message is printable");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 2000;
  const auto list = bootstrap::parse_host_list(as_text(data, size), kMost);
  if (!list) {
    check_message(list.error());
    return 0;
  }
  check(list->size() <= kMost, "no more names than allowed");
  for (const auto& name : *list) {
    check(!name.empty() && name.size() <= bootstrap::kMaxNodeName, "a name has a length that is allowed");
  }
  return 0;
}
