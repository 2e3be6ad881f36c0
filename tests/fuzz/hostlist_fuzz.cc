// Any bytes as a host list: refused with a readable reason, or a list all of whose views agree, at a bounded cost.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/host_list.h"
#include "property.h"

// gcc has the function and no header for it.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();

namespace {

using bootstrap::HostList;

void check_message(const bootstrap::Error& error) {
  check(error.message.size() < 600, "a message is short, however long the text is");
  const auto printable = [](char c) { return c >= 0x20 && c < 0x7f; };
  check(std::all_of(error.message.begin(), error.message.end(), printable), "a message is printable");
}

void check_host(const HostList& list, std::size_t index) {
  const auto name = list.at(index);
  check(!name.empty() && name.size() <= HostList::kMaxNameLength, "a name has a length that is allowed");
}

void check_expansion(const HostList& list) {
  const auto names = list.expand();
  check(names.size() == list.size(), "as many names as hosts");
  for (std::size_t i = 0; i < names.size(); ++i) check(list.at(i) == names[i], "at and expand agree");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = as_text(data, size);
  const auto allocated_before = __sanitizer_get_current_allocated_bytes();
  const auto list = HostList::parse(text);
  const auto allocated = __sanitizer_get_current_allocated_bytes() - allocated_before;
  check(allocated <= 64 * size + 4096, "memory is a small multiple of the text, not of the hosts");

  if (!list) {
    check_message(list.error());
    return 0;
  }
  if (list->size() == 0) return 0;
  for (const auto index : {std::size_t{0}, list->size() / 2, list->size() - 1}) check_host(*list, index);
  if (list->size() <= 200) check_expansion(*list);
  return 0;
}
