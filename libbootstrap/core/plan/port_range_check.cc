// Whether the range of ports is large enough for all that a step computes from it.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/port_range_check.h"

#include "core/util/text.h"

namespace bootstrap {
namespace {

// further_port() gives so many different ones, and none of them MASTER_PORT. It is asked with 1 for the first task of a
// node, and so on, for TensorFlow. Frameworks that nobody asked for by name refuse no step.
std::uint32_t ports_needed(const StepFacts& facts, const Settings& settings, const FrameworkFlags& sets) {
  constexpr auto kTensorflow = Framework::kTensorflow;
  if (!sets[static_cast<std::size_t>(kTensorflow)] || !settings.frameworks.value.asks_for(kTensorflow)) return 1;
  return 1 + facts.layout.most_on_a_node();
}

}  // namespace

Status check_port_range(const StepFacts& facts, const Settings& settings, const FrameworkFlags& sets) {
  const auto& range = settings.port_range.value;
  const auto size = std::uint32_t{range.high} - range.low + 1U;
  const auto needed = ports_needed(facts, settings, sets);
  if (size >= needed || facts.reserved_ports) return {};
  return fail(ErrorCode::kInvalid,
              cat({setting_name("port_range", settings.port_range.source), ": ", std::to_string(range.low), "-",
                   std::to_string(range.high), " has ", counted(size, "port"),
                   ", but MASTER_PORT and the frameworks of this step need ", std::to_string(needed),
                   "; use a range of at least ", std::to_string(needed), " ports"}));
}

}  // namespace bootstrap
