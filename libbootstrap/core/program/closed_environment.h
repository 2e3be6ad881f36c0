// Tools that start a program without the variables of its task.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace bootstrap {

// Whether the option of `tool` keeps all variables of the task from the program: `env -i`, `apptainer exec --cleanenv`.
bool closes_environment(std::string_view tool, std::string_view option) noexcept;

// sudo does so unless one of its options, those in front of the program, preserves them. `arguments`: behind sudo.
bool sudo_closes_environment(std::span<const std::string> arguments);

// What people read: `"env -i" keeps RANK, ... from the program; use env without -i`.
std::string describe_closed_environment(std::string_view tool, std::string_view option);

}  // namespace bootstrap
