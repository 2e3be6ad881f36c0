// What the simulator shows: every table says that it is simulated.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/report.h"

#include <gtest/gtest.h>

#include <string>

namespace bootstrap::simulation {
namespace {

Report small_report() {
  Report report;
  report.constants = *built_in_constants();
  report.scenario = {.ranks = 200, .ranks_per_node = 8};
  report.is_mixed = true;
  report.time_line = simulate_start(report.constants.values, report.scenario);
  report.sizes.push_back(simulate_size(report.constants.values, report.scenario, report.time_line));
  report.sensitivity = simulate_sensitivity(report.constants.values, report.scenario);
  return report;
}

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (auto place = text.find(word); place != std::string::npos; place = text.find(word, place + 1)) ++found;
  return found;
}

TEST(SimulationReport, SaysOfEachTableThatItIsSimulated) {
  const auto text = report_text(small_report());
  EXPECT_TRUE(text.starts_with("simulated with constants of "));
  EXPECT_EQ(count(text, "(simulated"), 4U);  // time line, sizes, goals, sensitivity
  for (const char character : text) EXPECT_TRUE(character == '\n' || (character >= ' ' && character <= '~'));
}

TEST(SimulationReport, SaysSoInJsonAsWell) {
  const auto json = report_json(small_report());
  EXPECT_TRUE(json.starts_with("{\n  \"simulated\": true,\n"));
  EXPECT_EQ(count(json, "\"origin\": "), constant_specs().size());
  EXPECT_EQ(count(json, "\"phase\": "), kPhases);
  EXPECT_EQ(count(json, "{"), count(json, "}"));
}

TEST(SimulationReport, KnowsTheGoalsOfTheDesign) {
  EXPECT_EQ(exchange_goal(100), 0.002);
  EXPECT_EQ(exchange_goal(101), 0.005);
  EXPECT_EQ(exchange_goal(100'000), 0.100);
  EXPECT_FALSE(exchange_goal(100'001).has_value());
}

}  // namespace
}  // namespace bootstrap::simulation
