// Any bytes as a file of constants: refused with a readable sentence, or constants with which a small start ends.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "property.h"
#include "simulation/report.h"

namespace {

using bootstrap::simulation::ConstantsFile;

void check_message(const bootstrap::Error& error) {
  check(error.message.starts_with("constants"), "a message says what was read");
  check(error.message.size() < 600, "a message is one readable sentence");
  const auto printable = [](char c) { return c >= 0x20 && c < 0x7f; };
  check(std::all_of(error.message.begin(), error.message.end(), printable), "a message is printable");
}

void check_file(const ConstantsFile& file, const ConstantsFile& base) {
  for (const auto& spec : bootstrap::simulation::constant_specs()) {
    const double value = file.values.*spec.member;
    check(std::isfinite(value) && value >= 0, "a constant is a number from 0 on");
  }
  const auto again = bootstrap::simulation::parse_constants(constants_text(file), base);
  check(again && again->machine == file.machine && again->date == file.date, "what was read can be written and read");
}

void check_start(ConstantsFile file) {
  using namespace bootstrap::simulation;
  const Scenario scenario{.ranks = 5, .ranks_per_node = 2, .roots = 2, .seed = 3};
  check(check_scenario(file.values, scenario).has_value(), "five ranks can be simulated");
  // A backlog that is served too slowly makes ranks try again for ever; here there is room for all.
  file.values.root_backlog = 100;
  const auto line = simulate_start(file.values, scenario);
  check(std::isfinite(line.end()) && line.end() >= 0, "a start ends");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto base = *bootstrap::simulation::built_in_constants();
  const auto file = bootstrap::simulation::parse_constants(as_text(data, size), base);
  if (!file) {
    check_message(file.error());
    return 0;
  }
  check_file(*file, base);
  check_start(*file);
  return 0;
}
