// The text of --help: 80 columns, the same parts for the command and for each subcommand.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace bootstrap {

// What CLI11 asks for --help. It takes the options from the command itself, so that none is missing; examples and exit
// statuses are the footer of the command.
class HelpText : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* command, std::string name, CLI::AppFormatMode mode) const override;
};

// "slurm-bootstrap check".
std::string full_name(const CLI::App& command);

}  // namespace bootstrap
