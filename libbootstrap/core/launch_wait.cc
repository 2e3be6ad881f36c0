// How long a rank lets the other nodes start their tasks before it sends the first message over Slurm's PMIx server.
// SPDX-License-Identifier: Apache-2.0
#include "core/launch_wait.h"

#include "core/text.h"

namespace bootstrap {

bool loses_early_messages(const Environment& environment) { return !environment.get("SLURM_JOB_START_TIME"); }

std::optional<std::uint64_t> start_ticks(std::string_view stat) {
  // proc(5): the command is in parentheses and may hold any character; the fields after it are counted from 0.
  constexpr std::size_t kStartTime = 19;
  const auto command = stat.rfind(')');
  if (command == std::string_view::npos) return {};
  const auto fields = split(trim(stat.substr(command + 1)), ' ');
  return fields.size() > kStartTime ? parse_unsigned(fields[kStartTime]) : std::nullopt;
}

}  // namespace bootstrap
