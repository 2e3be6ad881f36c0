// How long a rank lets the other nodes start their tasks before it sends the first message over Slurm's PMIx server.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/environment.h"

namespace bootstrap {

// Slurm before 23.02 (auth_setuid_lock, bug 15193): slurmstepd starts the tasks as the user, and its PMIx thread, which
// may have to make or read a credential of munge at that time, then does so as the user, too. The message is lost, and
// the fence never ends. So nobody may send one before all nodes have started their tasks.
//
// Told by SLURM_JOB_START_TIME, which slurmstepd sets in all tasks from some release after 22.05 on, whatever --export
// says. A release that has the repair and not the variable waits for nothing.
bool loses_early_messages(const Environment& environment);

// How old a rank is when all other nodes have started their tasks.
inline constexpr auto kLaunchTime = std::chrono::milliseconds(300);

// When a process started, in clock ticks since the boot, by its /proc/PID/stat.
std::optional<std::uint64_t> start_ticks(std::string_view stat);

}  // namespace bootstrap
