// slurm-bootstrap check: what works in this step, for all its ranks in one table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace bootstrap {

void add_check_command(CLI::App& app, int& status);

}  // namespace bootstrap
