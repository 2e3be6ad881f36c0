// Collects the variables of a plan under one rule: what the user set for this step is kept where it can be right.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/step/leftover_variables.h"
#include "core/step/step_facts.h"

namespace bootstrap {

class VariableList {
 public:
  explicit VariableList(const StepFacts& facts) : facts_(facts), leftovers_(facts.environment) {}

  // The same value for all tasks. `is_asked`: the user asked for it by an option of ours, which wins over a variable.
  void common(std::string_view name, std::string value, std::string from, bool is_asked = false) {
    add(name, {std::move(value)}, std::move(from), is_asked);
  }

  // The same for the whole step: another value cannot be right.
  void fact(std::string_view name, std::string value, std::string from);

  // A part of each rank's place. One value for all of them is kept where each of them has it.
  void by_place(std::string_view name, std::uint32_t Place::*member, std::string from);

  // One value for each local task.
  void by_task(std::string_view name, std::vector<std::string> values, std::string from);

  // Nobody's value but ours: what Slurm or an outer step left there is replaced without a word.
  void own(PlannedVariable variable) { variables_.push_back(std::move(variable)); }
  void own(std::string_view name, std::string value, std::string from);

  void set_framework(Framework framework) { variables_.back().framework = framework; }  // of the last one added

  // Set by the user, or by Slurm for the user: there, and not left over from us.
  bool set_by_user(std::string_view name) const;

  // Of the last one added: the user's value cannot be right, and gives way.
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

}  // namespace bootstrap
