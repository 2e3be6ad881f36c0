// The words of the command line before CLI11 reads them: unknown names, missing values, and where a program begins.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/util/result.h"

namespace bootstrap {

struct CommandWords {
  const CLI::App* command = nullptr;  // the subcommand, or the command where none is named
  std::vector<std::string> options;   // of slurm-bootstrap, with the subcommand's name
  std::vector<std::string> program;   // with its arguments; empty but for a subcommand that allows extras
  std::string step;                   // empty but for a subcommand that takes one
};

// JOBID or JOBID.STEP, before its options or behind them.
bool takes_step(const CLI::App& command);

// A program begins at the first word that is no option of the subcommand, or behind "--". The error is a sentence
// about the first word that the command does not know.
Result<CommandWords> read_words(const CLI::App& command, const std::vector<std::string>& words);

// For CLI11: a whole number in this range. The sentence of its own validator is of no help.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);

}  // namespace bootstrap
