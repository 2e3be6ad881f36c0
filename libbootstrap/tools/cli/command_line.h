// How CLI11 reads numbers and prints --help.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace bootstrap {

// 80 columns, the same parts for the command and for each subcommand. Options come from the command itself, so that
// none is missing; examples and exit statuses are the footer of the command.
class HelpText : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* command, std::string name, CLI::AppFormatMode mode) const override;
};

// "slurm-bootstrap check".
std::string full_name(const CLI::App& command);

// A whole number in this range. The sentence of CLI11's own validator is of no help.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);

}  // namespace bootstrap
