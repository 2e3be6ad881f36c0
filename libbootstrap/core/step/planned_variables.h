// The variables of a plan. One rule: a value that the user set for this step is kept if it can be right.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/settings.h"
#include "core/settings/variables.h"
#include "core/step/rank_layout.h"
#include "core/step/step_facts.h"
#include "core/util/environment.h"

namespace bootstrap {

// In RANK where a step asks on its own line, until task_init sets the rank.
inline constexpr std::string_view kRankPlaceholder = "not-set:this-node-did-not-run-slurm-bootstrap";

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
  bool is_users = false;       // `previous` was the user's, and no leftover of ours
  bool is_unsuitable = false;  // `previous` is the user's, and cannot be right
  std::string previous;        // for kReplaced and kKept
  std::string why;             // why `previous` was replaced or kept, for people

  const std::string& value(std::size_t local_task) const {
    return values.size() == 1 ? values.front() : values[local_task];
  }
  const std::string& effective() const { return action == Action::kKept ? previous : value(0); }
  bool operator==(const PlannedVariable&) const = default;
};

// The values that the plugin of an outer step left in an inherited environment.
class ExportRecord {
 public:
  explicit ExportRecord(const Environment& environment);

  // True if this project set the value, for any step, and it is unchanged. A RANK or MASTER_PORT that the user sets
  // inside a task of the outer step is the user's.
  bool is_ours(std::string_view name, std::string_view value) const;

  bool has_set(std::string_view name) const;  // by the record, also where it was changed since

  const std::string& step_tag() const { return step_tag_; }                  // empty: there are none
  std::vector<std::string> unchanged(const Environment& environment) const;  // names that still hold our values
  std::string with(std::string_view name, std::string_view value) const;     // as text, with this value of it

 private:
  std::string step_tag_;
  std::vector<std::pair<std::string, std::uint32_t>> exports_;
};

// Writes SLURM_BOOTSTRAP_EXPORTS for `count` local tasks from `first` on: the record of all others in `variables`,
// added as the last where there is none.
void renew_exports(std::vector<PlannedVariable>& variables, std::size_t first, std::size_t count);

class VariableList {
 public:
  explicit VariableList(const StepFacts& facts) : facts_(facts), leftovers_(facts.environment) {}

  // The same value for all tasks. `is_asked`: the user asked for it by an option of ours, which wins over a variable.
  void common(std::string_view name, std::string value, std::string from, bool is_asked = false) {
    add(name, {std::move(value)}, std::move(from), is_asked);
  }

  // The same for a value of the whole step: another value cannot be right.
  void fact(std::string_view name, std::string value, std::string from);

  // A part of each rank's place. The user's value is kept if it is right for each of the ranks.
  void by_place(std::string_view name, std::uint32_t Place::*member, std::string from);

  // One value for each local task.
  void by_task(std::string_view name, std::vector<std::string> values, std::string from);

  // Always our value: a value of Slurm or an outer step is replaced without a message.
  void own(PlannedVariable variable) { variables_.push_back(std::move(variable)); }
  void own(std::string_view name, std::string value, std::string from);

  void set_framework(Framework framework) { variables_.back().framework = framework; }  // of the last one added

  // True if the variable is set, and not left over from us: by the user, or by Slurm for the user.
  bool set_by_user(std::string_view name) const;

  // The user's value of the last one added cannot be right, and is replaced.
  void replace_users(std::string why);

  std::vector<PlannedVariable> take() && { return std::move(variables_); }

 private:
  void add(std::string_view name, std::vector<std::string> values, std::string from, bool is_asked,
           std::uint32_t Place::*member = nullptr);
  bool is_set_up() const { return leftovers_.step_tag() == step_tag(facts_.id); }  // what is there is this task's own
  bool fits_every_rank(const PlannedVariable& variable) const;

  const StepFacts& facts_;
  ExportRecord leftovers_;
  std::vector<PlannedVariable> variables_;
};

// One value where all are the same.
PlannedVariable variable_of(std::string_view name, std::vector<std::string> values, std::string from);

// Returns `current` with `library` as its last entry: the runtimes of sanitizers must come first. Unchanged if it, or
// another file of that name, is in the list already. Spaces or colons separate the entries (ld.so(8)).
std::string append_preload(std::string_view current, std::string_view library);

}  // namespace bootstrap
