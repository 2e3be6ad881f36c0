// What Python runs, by its command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace bootstrap {

struct PythonCommand {
  std::size_t script = 0;        // word of the script; 0: there is none
  std::string_view module = {};  // empty: there is none
  std::size_t arguments = 0;     // first word behind either
};

// By Python's own options (python(1)); those of several letters may be joined: -uB. `at(i)` gives the i-th word, the
// first one being Python itself.
template <class At>
PythonCommand read_python(std::size_t count, At at) noexcept {
  constexpr std::string_view kFlags = "bBdEhiIOPqsSuvVx";
  for (std::size_t i = 1; i < count; ++i) {
    const std::string_view word = at(i);
    if (!word.starts_with("-") || word == "-") return {.script = i, .module = {}, .arguments = i + 1};
    if (word == "--check-hash-based-pycs") ++i;
    if (word.starts_with("--")) continue;
    for (std::size_t letter = 1; letter < word.size(); ++letter) {
      const bool is_last = letter + 1 == word.size();
      if (word[letter] == 'c') return {};  // the code is on the command line
      if (word[letter] == 'm' && !is_last) return {.script = 0, .module = word.substr(letter + 1), .arguments = i + 1};
      if (word[letter] == 'm') return {.script = 0, .module = i + 1 < count ? at(i + 1) : "", .arguments = i + 2};
      const bool has_value = word[letter] == 'W' || word[letter] == 'X';
      if (has_value && is_last) ++i;
      if (has_value || kFlags.find(word[letter]) == std::string_view::npos) break;
    }
  }
  return {};
}

}  // namespace bootstrap
