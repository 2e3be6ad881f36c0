// slurm-bootstrap explain: what this task was given and why.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace bootstrap {

void add_explain_command(CLI::App& app, int& status);

}  // namespace bootstrap
