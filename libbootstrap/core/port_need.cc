// Whether the range of ports is large enough for all that a step computes from it.
// SPDX-License-Identifier: Apache-2.0
#include "core/port_need.h"

#include <algorithm>

#include "core/rendezvous.h"
#include "core/text.h"

namespace bootstrap {
namespace {

// Beside MASTER_PORT: the n with which further_port() is asked go from 1 to this.
// Frameworks that nobody asked for by name refuse no step.
std::uint32_t further_ports(const Facts& facts, const Settings& settings, const FrameworkFlags& sets) {
  const auto counts = [&](Framework framework) {
    return sets[static_cast<std::size_t>(framework)] && settings.frameworks.value.asks_for(framework);
  };
  std::uint32_t most = 0;
  for (Rank rank = 0; rank < facts.layout.size(); ++rank) most = std::max(most, facts.layout.place(rank).local_size);
  if (counts(Framework::kHorovod)) return most + 1;  // behind those of TensorFlow's servers
  return counts(Framework::kTensorflow) ? most : 0;
}

}  // namespace

Status check_port_range(const Facts& facts, const Settings& settings, const FrameworkFlags& sets) {
  const auto& range = settings.port_range.value;
  const auto size = std::uint32_t{range.high} - range.low + 1U;
  const auto needed = 1 + further_ports(facts, settings, sets);
  if (size >= needed || facts.environment.has("SLURM_STEP_RESV_PORTS")) return {};
  return fail(
      ErrorCode::kInvalid,
      cat({setting_name("port_range", settings.port_range.source), ": ", std::to_string(range.low), "-",
           std::to_string(range.high), size == 1 ? " is one port" : cat({" are ", std::to_string(size), " ports"}),
           ", and this step computes ", std::to_string(needed),
           " from it, for MASTER_PORT and its frameworks; give it a range of at least so many"}));
}

}  // namespace bootstrap
