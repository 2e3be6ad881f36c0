// The Python that a task would start, and which frameworks it has: from the names of installed packages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/util/environment.h"

namespace bootstrap {

// Empty texts: there is none.
struct PythonFrameworks {
  std::string python;      // "3.11.2 (/usr/bin/python3)"
  std::string frameworks;  // "torch 2.6.0, mpi4py 4.0.3"
  std::string nccl;        // of its packages: "2.21.5"
  std::string nccl_path;
};

// That of the active environment, else python3 of PATH.
std::string python_of(const Environment& environment);

// From what frameworks.py prints.
PythonFrameworks read_frameworks(std::string_view text);

}  // namespace bootstrap
