// The subcommands of slurm-bootstrap, and what they have in common: messages and options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bootstrap {

inline constexpr int kUsageError = 2;

// Each adds a subcommand that sets the exit status when it has run.
using CommandAdder = void(CLI::App& app, int& status);
CommandAdder add_explain, add_check, add_run, add_status, add_where, add_supervise, add_near;

// Runs on a node, in the step that `status` starts to look at it. `words` come from `status`.
int become_node_look(const std::vector<std::string>& words);

// Prints the sentence on standard error, and returns the status.
int complain(std::string_view sentence, int status = 1);

// `run` finds its options in the command, and returns the exit status.
CLI::App* add_command(CLI::App& app, int& status, const char* name, int (*run)(const CLI::App& command),
                      const char* about, const char* footer);
CLI::Option* add_flag(CLI::App& command, const char* name, const std::string& help);
// Adds an option with a whole number in this range. `value`: its default.
void add_number(CLI::App& command, const char* name, const char* type, std::uint64_t least, std::uint64_t most,
                const std::string& help, const char* value = "");

std::string value_of(const CLI::App& command, const char* option);
bool has_flag(const CLI::App& command, const char* flag);

std::string own_path();

}  // namespace bootstrap
