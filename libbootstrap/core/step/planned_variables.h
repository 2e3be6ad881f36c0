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

// The value of RANK in a step that asks on its own line, until task_init sets the rank.
inline constexpr std::string_view kRankPlaceholder = "not-set:this-node-did-not-run-slurm-bootstrap";

inline constexpr std::string_view kTasksPerNodeVariable = "SLURM_NTASKS_PER_NODE";  // Slurm's, and not always set

enum class Action : std::uint8_t {
  kSet,       // was not there
  kReplaced,  // `previous` was there: a leftover of ours, not right, or the user asked for another value by option
  kKept,      // `previous` was there, set by the user for this step
};

// The value that one task gets.
struct PlannedVariable {
  std::string name = {};
  std::string value = {};
  std::string from = {};                     // where the value comes from, for people
  std::uint32_t Place::*of_place = nullptr;  // set: the value of each rank of the step is this part of its place
  bool is_of_task = false;                   // other tasks may have another value
  std::optional<Framework> framework = {};   // the one that reads it; empty: any program, or this project
  Action action = Action::kSet;
  bool is_users = false;       // `previous` was the user's, and no leftover of ours
  bool is_unsuitable = false;  // `previous` is the user's, and cannot be right
  std::string previous = {};   // for kReplaced and kKept
  std::string why = {};        // why `previous` was replaced or kept, for people

  const std::string& effective() const { return action == Action::kKept ? previous : value; }
  bool operator==(const PlannedVariable&) const = default;
};
using Variables = std::vector<PlannedVariable>;

const PlannedVariable* find_variable(const Variables& variables, std::string_view name);  // null: it is not there
bool is_kept(const Variables& variables, std::string_view name);                          // the user's value stays

// The value that the program really sees: the user's if it is kept, else ours; empty: there is none.
std::string effective_value(const Variables& variables, std::string_view name);

// The values that the plugin of an outer step left in an inherited environment.
class ExportRecord {
 public:
  explicit ExportRecord(const Environment& environment);

  // True if this project set the value, for any step, and it is unchanged. A RANK or MASTER_PORT that the user sets
  // inside a task of the outer step is the user's.
  bool is_ours(std::string_view name, std::string_view value) const;

  bool has_set(std::string_view name) const;  // by the record, even if it was changed since

  const std::string& step_tag() const { return step_tag_; }                  // empty: there is no record
  std::vector<std::string> unchanged(const Environment& environment) const;  // names that still hold our values
  std::string with(std::string_view name, std::string_view value) const;  // the record as text, with this value in it

 private:
  std::string step_tag_;
  std::vector<std::pair<std::string, std::uint32_t>> exports_;
};

// Adds SLURM_BOOTSTRAP_EXPORTS, the record of all of `variables`, as the last one.
void add_exports(Variables& variables);

// In a task that is set up already, the plan has the values that it was given: slurmstepd knew more than a task does.
class VariableList {
 public:
  // Appends to `variables`.
  VariableList(const StepFacts& facts, Variables& variables)
      : facts_(facts),
        record_(facts.environment),
        is_set_up_(record_.step_tag() == step_tag(facts.id)),
        variables_(variables) {}

  // The same value for all tasks. `is_asked`: the user asked for it by an option of ours, which wins over a variable.
  void common(std::string_view name, std::string value, std::string from, bool is_asked = false);

  // The same for a value of the whole step: another value cannot be right.
  void fact(std::string_view name, std::string value, std::string from);

  // A part of this rank's place. The user's value is kept if it is right for each of the ranks.
  void by_place(std::string_view name, const Place& place, std::uint32_t Place::*member, std::string from);

  // A variable of one framework. Adds nothing if this task is set up and was not given the variable.
  void of_framework(Framework framework, std::string_view name, std::string value, std::string from, bool is_of_task);

  // Always our value: a value of Slurm or an outer step is replaced without a message.
  void own(std::string_view name, std::string value, std::string from, bool is_of_task = false,
           std::optional<Framework> framework = {});

  // Further variables that this task was given when it started.
  void add_recorded();

  PlannedVariable& last() { return variables_.back(); }

  // True if the variable is set, and not left over from us: by the user, or by Slurm for the user.
  bool set_by_user(std::string_view name) const;

  // True if the task is set up and was not given this variable.
  bool is_left_out(std::string_view name) const { return is_set_up_ && !record_.has_set(name) && !set_by_user(name); }

  // Replaces the user's value of the variable that was added last, because it cannot be right.
  void replace_users(std::string why);

 private:
  void add(PlannedVariable variable, bool is_asked);
  void push(PlannedVariable variable);

  const StepFacts& facts_;
  ExportRecord record_;
  bool is_set_up_;
  Variables& variables_;
};

// Returns `current` with `library` as its last entry: the runtimes of sanitizers must come first. Unchanged if it, or
// another file of that name, is in the list already. Spaces or colons separate the entries (ld.so(8)).
std::string append_preload(std::string_view current, std::string_view library);

}  // namespace bootstrap
