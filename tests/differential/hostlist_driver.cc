// Reads host lists that end with NUL, and prints the result of parse_host_list for hostlist_differential.py.
// SPDX-License-Identifier: Apache-2.0
//
// Output for each list: a NUL, then ">" and one host in each line, or "!" and the reason if the list is refused.
#include <cstdio>
#include <string>
#include <string_view>

#include "core/step/host_list.h"

namespace {

bool read_list(std::string& text) {
  text.clear();
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    if (c == '\0') return true;
    text += static_cast<char>(c);
  }
  return false;
}

void write(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace

int main() {
  std::string text;
  while (read_list(text)) {
    write(std::string_view("\0", 1));
    const auto list = bootstrap::parse_host_list(text);
    if (!list) {
      write("!" + list.error().message);
      continue;
    }
    write(">");
    for (const auto& name : *list) write(name + "\n");
  }
  return 0;
}
