// A simulation as JSON, labelled as simulated.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>

#include "core/util/json.h"
#include "core/util/text.h"
#include "simulation/report.h"

namespace bootstrap::simulation {
namespace {

std::string json_real(std::string_view name, double value) {
  std::array<char, 64> text{};
  (void)std::snprintf(text.data(), text.size(), "%.6g", value);
  return json_member(name, text.data());
}

std::string milliseconds(std::string_view name, Seconds time) { return json_real(cat({name, "_ms"}), time * 1e3); }

std::string json_object(const std::vector<std::string>& members) {
  std::string out = "{";
  for (const auto& member : members) out += cat({out.size() > 1 ? ", " : "", member});
  return out + "}";
}

std::string_view gets_word(Gets gets) {
  constexpr std::array<std::string_view, 3> kWords{"roots", "node", "all"};
  return kWords[static_cast<std::size_t>(gets)];
}

std::vector<std::string> scenario_members(const Scenario& scenario) {
  return {json_number("ranks", scenario.ranks),
          json_number("ranks_per_node", scenario.ranks_per_node),
          json_number("nodes", scenario.nodes()),
          json_number("roots", scenario.root_ranks()),
          json_member("fence", json_string(scenario.fence == FenceKind::kTree ? "tree" : "ring")),
          json_member("gets", json_string(gets_word(scenario.gets)))};
}

std::string json_time_line(const Report& report) {
  std::vector<std::string> phases;
  for (std::size_t i = 0; i < kPhases; ++i) {
    const auto& span = report.time_line.phases[i];
    if (!span.is_there) continue;
    phases.push_back(json_object({json_member("phase", json_string(phase_name(static_cast<Phase>(i)))),
                                  milliseconds("begins", span.begin), milliseconds("ends", span.end)}));
  }
  auto members = scenario_members(report.scenario);
  members.push_back(json_number("seed", report.scenario.seed));
  members.push_back(json_number("events", report.time_line.events));
  members.push_back(json_member("phases", json_list(phases)));
  return json_object(members);
}

std::string json_size(const SizeRow& row) {
  auto members = scenario_members(row.scenario);
  for (const auto& member :
       {milliseconds("launch", row.launch), milliseconds("values", row.values),
        milliseconds("exchange_ring", row.exchange_ring), milliseconds("exchange_tree", row.exchange_tree),
        milliseconds("one_root", row.one_root), milliseconds("many_roots", row.many_roots),
        milliseconds("nccl_ring", row.nccl_ring), milliseconds("tcpstore", row.store),
        milliseconds("tcpstore_late", row.late_store), milliseconds("root_goal", kRootGoal)}) {
    members.push_back(member);
  }
  if (const auto goal = exchange_goal(row.scenario.ranks); goal)
    members.push_back(milliseconds("exchange_goal", *goal));
  return json_object(members);
}

std::string json_pair(std::string_view name, const double (&pair)[2]) {
  return json_member(name, json_object({json_real("half", pair[0]), json_real("twice", pair[1])}));
}

std::string json_sensitivity(const SensitivityRow& row) {
  return json_object({json_member("constant", json_string(row.name)), json_real("value", row.value),
                      json_pair("exchange", row.exchange), json_pair("roots", row.roots),
                      json_pair("start", row.start)});
}

std::string json_constant(const ConstantSpec& spec, const ConstantsFile& file) {
  const auto origin = file.origins.find(spec.name);
  return json_object({json_member("name", json_string(spec.name)), json_real("value", file.values.*spec.member),
                      json_member("text", json_string(constant_text(spec, file.values.*spec.member))),
                      json_member("origin", json_string(origin == file.origins.end() ? "" : origin->second))});
}

}  // namespace

std::string report_json(const Report& report) {
  std::vector<std::string> sizes;
  for (const auto& row : report.sizes) sizes.push_back(json_size(row));
  std::vector<std::string> sensitivity;
  for (const auto& row : report.sensitivity) sensitivity.push_back(json_sensitivity(row));
  std::vector<std::string> constants;
  for (const auto& spec : constant_specs()) constants.push_back(json_constant(spec, report.constants));
  const std::vector<std::string> members{
      json_member("simulated", "true"),
      json_member("date", json_string(report.constants.date)),
      json_member("machine", json_string(report.constants.machine)),
      json_member("time_line", json_time_line(report)),
      json_member("sizes", json_list(sizes)),
      json_member("sensitivity", json_list(sensitivity)),
      json_member("constants", json_list(constants)),
  };
  std::string out = "{";
  for (const auto& member : members) out += cat({out.size() > 1 ? ",\n  " : "\n  ", member});
  return out + "\n}\n";
}

}  // namespace bootstrap::simulation
