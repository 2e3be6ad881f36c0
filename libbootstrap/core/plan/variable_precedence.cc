// Collects the variables of a plan under one rule: what the user set for this step is kept where it can be right.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/variable_precedence.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/util/text.h"

namespace bootstrap {

PlannedVariable variable_of(std::string_view name, std::vector<std::string> values, std::string from) {
  if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end()) values.resize(1);
  PlannedVariable variable;
  variable.name = name;
  variable.values = std::move(values);
  variable.from = std::move(from);
  return variable;
}

void VariableList::by_place(std::string_view name, std::uint32_t Place::*member, std::string from) {
  std::vector<std::string> values;
  for (const auto rank : facts_.local_ranks) values.push_back(std::to_string(facts_.layout.place(rank).*member));
  add(name, std::move(values), std::move(from), false, member);
  if (variables_.back().action == Action::kKept && !fits_every_rank(variables_.back())) {
    replace_users("it is one value for all tasks");
  }
}

void VariableList::fact(std::string_view name, std::string value, std::string from) {
  add(name, {std::move(value)}, std::move(from), false);
  const auto& variable = variables_.back();
  if (variable.action == Action::kKept && variable.previous != variable.value(0)) {
    replace_users(cat({"this step has ", variable.value(0)}));
  }
}

void VariableList::replace_users(std::string why) {
  auto& variable = variables_.back();
  if (variable.action != Action::kKept || is_set_up()) return;
  variable.action = Action::kReplaced;
  variable.is_unsuitable = true;
  variable.why = std::move(why);
}

// A task that knows no more than its own environment judges by its own value.
bool VariableList::fits_every_rank(const PlannedVariable& variable) const {
  if (facts_.is_one_task) return variable.previous == variable.value(0);
  for (Rank rank = 0; rank < facts_.layout.size(); ++rank) {
    if (variable.previous != std::to_string(facts_.layout.place(rank).*variable.of_place)) return false;
  }
  return true;
}

void VariableList::by_task(std::string_view name, std::vector<std::string> values, std::string from) {
  add(name, std::move(values), std::move(from), false);
}

void VariableList::own(std::string_view name, std::string value, std::string from) {
  variables_.push_back(variable_of(name, {std::move(value)}, std::move(from)));
}

bool VariableList::set_by_user(std::string_view name) const {
  const auto value = facts_.environment.get(name);
  return value && !leftovers_.is_ours(name, *value);
}

void VariableList::add(std::string_view name, std::vector<std::string> values, std::string from, bool is_asked,
                       std::uint32_t Place::*member) {
  auto variable = variable_of(name, std::move(values), std::move(from));
  variable.of_place = member;
  if (const auto current = facts_.environment.get(name)) {
    variable.previous = *current;
    if (leftovers_.is_ours(name, *current)) {
      variable.action = leftovers_.step_tag() == step_tag(facts_.id) ? Action::kSet : Action::kReplaced;
      variable.why = cat({"left over from step ", leftovers_.step_tag().substr(0, leftovers_.step_tag().rfind('.'))});
    } else if (is_asked) {
      variable.action = Action::kReplaced;
      variable.why = "asked for by option or SLURM_BOOTSTRAP_* variable";
    } else {
      variable.action = Action::kKept;
      variable.why = "set by the user";
    }
  }
  variables_.push_back(std::move(variable));
}

}  // namespace bootstrap
