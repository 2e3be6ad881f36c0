// What the command shows of a simulation: a time line, sizes side by side, goals, and what the constants change.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulation/start_up.h"

namespace bootstrap::simulation {

// Of one number of ranks. Everything but the fence and the roots is as in the scenario that was asked for.
struct SizeRow {
  Scenario scenario;
  Seconds launch = 0;         // srun to main() of the last rank
  Seconds values = 0;         // from there to the ids (or values) in the last hand
  Seconds exchange_ring = 0;  // of ranks that begin together
  Seconds exchange_tree = 0;
  Seconds one_root = 0;
  Seconds many_roots = 0;
  Seconds nccl_ring = 0;
  Seconds store = 0;       // as `values`, over a TCPStore that listens before the ranks come
  Seconds late_store = 0;  // that begins to listen when its rank gets there
};

struct SensitivityRow {
  std::string_view name;
  double value = 0;
  // Of half and of twice the constant, over those of the constant itself.
  double exchange[2] = {1, 1};
  double roots[2] = {1, 1};
  double start[2] = {1, 1};  // srun to the end of check-in

  double most() const;  // the largest factor among these, up or down
};

struct Report {
  ConstantsFile constants;
  Scenario scenario;  // of the time line
  bool is_mixed = false;
  TimeLine time_line;
  std::vector<SizeRow> sizes;
  std::vector<SensitivityRow> sensitivity;
};

// `line` is that of the scenario.
SizeRow simulate_size(const Constants& constants, const Scenario& scenario, const TimeLine& line);

// Of each constant that is a time, a rate, a bandwidth or a number of bytes; the largest effect first.
std::vector<SensitivityRow> simulate_sensitivity(const Constants& constants, const Scenario& scenario);

// What the design asks of an exchange with its Gets, and of the check-in of all ranks.
std::optional<Seconds> exchange_goal(std::uint32_t ranks);
inline constexpr Seconds kRootGoal = 0.050;

// Every table says that it is simulated. Printable ASCII; ends with a newline.
std::string report_text(const Report& report);

// One JSON object, RFC 8259, with "simulated": true.
std::string report_json(const Report& report);

std::string_view phase_name(Phase phase);

}  // namespace bootstrap::simulation
