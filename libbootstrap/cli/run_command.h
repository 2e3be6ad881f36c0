// slurm-bootstrap run: a check, and then the program in place of this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace bootstrap {

void add_run_command(CLI::App& app, int& status);

}  // namespace bootstrap
