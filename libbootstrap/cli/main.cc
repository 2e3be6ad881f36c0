// slurm-bootstrap: the command. Each subcommand has a file of its own.
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bootstrap/bootstrap.h"
#include "cli/check_command.h"
#include "cli/explain_command.h"
#include "cli/run_command.h"
#include "cli/topology_command.h"

int main(int count, char** arguments) {
  try {
    CLI::App app("Shows and checks how slurm-bootstrap sets up the tasks of a Slurm step.", "slurm-bootstrap");
    app.set_version_flag("--version", BOOTSTRAP_VERSION_TEXT);
    app.require_subcommand(1);
    int status = 0;
    bootstrap::add_explain_command(app, status);
    bootstrap::add_check_command(app, status);
    bootstrap::add_run_command(app, status);
    bootstrap::add_topology_command(app, status);
    CLI11_PARSE(app, count, arguments);
    return status;
  } catch (const std::exception& exception) {
    (void)std::fprintf(stderr, "slurm-bootstrap: %s\n", exception.what());
    return 1;
  }
}
