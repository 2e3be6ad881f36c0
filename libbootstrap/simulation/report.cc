// What the command shows of a simulation: sizes side by side, and what the constants change.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/report.h"

#include <algorithm>
#include <array>
#include <utility>

namespace bootstrap::simulation {
namespace {

// What a constant may change.
struct Outcome {
  Seconds exchange;
  Seconds roots;
  Seconds start;
};

Outcome simulate_outcome(const Constants& constants, const Scenario& scenario) {
  const auto line = simulate_start(constants, scenario);
  return {simulate_exchange(constants, scenario), simulate_roots(constants, scenario),
          std::max(line.at(Phase::kRoot).end, line.at(Phase::kGets).end)};
}

// The same where only what a constant of this part can change is simulated again.
Outcome simulate_change(const Constants& constants, const Scenario& scenario, Part part, const Outcome& usual) {
  auto outcome = usual;
  if (part == Part::kStore) return outcome;
  if (part == Part::kExchange) outcome.exchange = simulate_exchange(constants, scenario);
  if (part != Part::kLaunch) outcome.roots = simulate_roots(constants, scenario);
  const auto line = simulate_start(constants, scenario);
  outcome.start = std::max(line.at(Phase::kRoot).end, line.at(Phase::kGets).end);
  return outcome;
}

bool is_varied(const ConstantSpec& spec, double value) {
  return value > 0 && spec.dimension != Dimension::kCount && spec.dimension != Dimension::kNumber;
}

}  // namespace

double SensitivityRow::most() const {
  double most = 1;
  for (const auto* pair : {&exchange, &roots, &start}) {
    for (const double factor : *pair) most = std::max(most, factor > 0 ? std::max(factor, 1 / factor) : 1);
  }
  return most;
}

SizeRow simulate_size(const Constants& constants, const Scenario& scenario, const TimeLine& line) {
  SizeRow row;
  row.scenario = scenario;
  auto varied = scenario;
  row.launch = line.at(Phase::kTasks).end;
  row.values = line.at(Phase::kGets).end - row.launch;
  varied.fence = FenceKind::kRing;
  row.exchange_ring = simulate_exchange(constants, varied);
  varied.fence = FenceKind::kTree;
  row.exchange_tree = simulate_exchange(constants, varied);
  varied.roots = 1;
  row.one_root = simulate_roots(constants, varied);
  varied.roots = scenario.roots == 1 ? 0 : scenario.roots;
  row.many_roots = simulate_roots(constants, varied);
  row.nccl_ring = line.at(Phase::kRing).takes();
  row.store = simulate_store(constants, scenario, true);
  row.late_store = simulate_store(constants, scenario, false);
  return row;
}

std::vector<SensitivityRow> simulate_sensitivity(const Constants& constants, const Scenario& scenario) {
  const auto usual = simulate_outcome(constants, scenario);
  std::vector<SensitivityRow> rows;
  for (const auto& spec : constant_specs()) {
    const double value = constants.*spec.member;
    if (!is_varied(spec, value)) continue;
    SensitivityRow row{.name = spec.name, .value = value};
    for (const std::size_t way : {0U, 1U}) {
      auto varied = constants;
      varied.*spec.member = value * (way == 0 ? 0.5 : 2.0);
      const auto outcome = simulate_change(varied, scenario, spec.part, usual);
      row.exchange[way] = outcome.exchange / usual.exchange;
      row.roots[way] = outcome.roots / usual.roots;
      row.start[way] = outcome.start / usual.start;
    }
    rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.most() > b.most(); });
  return rows;
}

std::optional<Seconds> exchange_goal(std::uint32_t ranks) {
  constexpr std::array<std::pair<std::uint32_t, Seconds>, 4> kGoals{
      {{100, 0.002}, {1'000, 0.005}, {10'000, 0.020}, {100'000, 0.100}}};
  for (const auto& [most, goal] : kGoals) {
    if (ranks <= most) return goal;
  }
  return std::nullopt;
}

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, kPhases> kNames{"launch", "tasks", "pmix_init", "fence",
                                                         "gets",   "roots", "nccl_ring"};
  return kNames[static_cast<std::size_t>(phase)];
}

}  // namespace bootstrap::simulation
