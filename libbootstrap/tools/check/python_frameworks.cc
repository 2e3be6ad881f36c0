// The Python that a task would start, and which frameworks it has: from the names of installed packages.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/python_frameworks.h"

#include <unistd.h>

#include "core/util/text.h"

namespace bootstrap {

std::string python_of(const Environment& environment) {
  for (const auto* const name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto prefix = environment.get(name);
    auto path = cat({prefix.value_or(""), "/bin/python3"});
    if (prefix && ::access(path.c_str(), X_OK) == 0) return path;
  }
  return "python3";
}

PythonFrameworks read_frameworks(std::string_view text) {
  PythonFrameworks found;
  for (const auto line : split(text, '\n')) {
    const auto words = split(line, '\t');
    if (words.size() < 2) continue;
    if (words[0] == "python" && words.size() == 3) {
      found.python = cat({words[1], " (", words[2], ")"});
    } else if (words[0] == "nccl" && words.size() == 3) {
      found.nccl = words[1];
      found.nccl_path = words[2];
    } else {
      found.frameworks += cat({found.frameworks.empty() ? "" : ", ", words[0], " ", words[1]});
    }
  }
  return found;
}

}  // namespace bootstrap
