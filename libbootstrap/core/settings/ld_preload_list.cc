// LD_PRELOAD as a list: where a library is added to what the user has there.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/ld_preload_list.h"

#include "core/util/text.h"

namespace bootstrap {
namespace {

// "libbootstrap.so" of "/usr/lib/libbootstrap.so.0".
std::string_view stem(std::string_view path) {
  const auto name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  const auto end = name.find(".so");
  return end == std::string_view::npos ? name : name.substr(0, end + 3);
}

}  // namespace

std::string append_preload(std::string_view current, std::string_view library) {
  for (const auto part : split(current, ':')) {
    for (const auto entry : split(part, ' ')) {
      if (!entry.empty() && stem(entry) == stem(library)) return std::string(current);
    }
  }
  return cat({current, current.empty() ? "" : ":", library});
}

}  // namespace bootstrap
