// In the forked child that becomes the task: applies a plan, or ends the task with a reason. Nothing is opened, locked
// or found out here: the child of a threaded process may do little.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "core/plan.h"
#include "spank_api.h"

namespace bootstrap {

Status apply(spank_t spank, const Plan& plan, std::uint32_t local_task, Rank rank);

// Standard error of the task, unchanged: no "slurmstepd: " in front of a table.
void print_to_task(const std::string& text) noexcept;

// Ends the child before the program starts; does not return, whatever its type says, which is that of a hook.
int end_task() noexcept;

// "port 20037 of node001 cannot be held: it is in use ...; ...": what the user can do about it.
std::string explain_refused_port(const std::string& reason, const std::string& host, const Settings& settings);

}  // namespace bootstrap
