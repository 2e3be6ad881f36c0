// The rule that decides what becomes of one variable: the user's value is kept, a leftover of ours is replaced.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/framework_choice.h"
#include "core/settings/internal_variables.h"
#include "core/step/rank_layout.h"
#include "core/util/environment.h"

namespace bootstrap {

inline constexpr std::string_view kTasksPerNodeVariable = "SLURM_NTASKS_PER_NODE";  // Slurm's, and missing at times

enum class Action : std::uint8_t {
  kSet,       // was not there
  kReplaced,  // `previous` was there: a leftover of ours, not right, or the user asked for another value by option
  kKept,      // `previous` was there, set by the user for this step
};

struct PlannedVariable {
  std::string name;
  std::vector<std::string> values;           // one for all tasks, or one for each local task
  std::string from;                          // where the value comes from, for people
  std::uint32_t Place::*of_place = nullptr;  // set: the value of each rank of the step is this part of its place
  std::optional<Framework> framework;        // the one that reads it; empty: all do, or ours do
  Action action = Action::kSet;
  bool is_unsuitable = false;  // `previous` was the user's, and cannot be right
  std::string previous;        // for kReplaced and kKept
  std::string why;             // why `previous` was replaced or kept, for people

  const std::string& value(std::size_t local_task) const {
    return values.size() == 1 ? values.front() : values[local_task];
  }
  const std::string& effective() const { return action == Action::kKept ? previous : value(0); }
  bool operator==(const PlannedVariable&) const = default;
};

// What an outer step's plugin left in an environment that this step inherited.
class ExportRecord {
 public:
  explicit ExportRecord(const Environment& environment);

  // True when the value was set by us, for whichever step, and not changed since. A user who sets RANK or MASTER_PORT
  // inside a task of the outer step changes it, and it is the user's from then on.
  bool is_ours(std::string_view name, std::string_view value) const;

  bool has_set(std::string_view name) const;  // by the record, whatever became of it

  const std::string& step_tag() const { return step_tag_; }                  // empty: there are none
  std::vector<std::string> unchanged(const Environment& environment) const;  // names that still hold our values

 private:
  std::string step_tag_;
  std::vector<std::pair<std::string, std::uint32_t>> exports_;
};

// Writes SLURM_BOOTSTRAP_EXPORTS for these local tasks: the record of all others in `variables`, added as the last
// where there is none.
void renew_exports(std::vector<PlannedVariable>& variables, const std::vector<std::size_t>& tasks);

}  // namespace bootstrap
