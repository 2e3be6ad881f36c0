// The variables of a plan, under one rule: a value that the user set for this step is kept where it can be right.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/planned_variables.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/hardware/gpu_list.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxExports = 256;  // we set at most 40; a longer record is not ours

std::string write_exports(const std::vector<PlannedVariable>& variables, std::size_t local_task) {
  constexpr std::size_t kUsualEntry = 32;
  std::string text;
  text.reserve(variables.size() * kUsualEntry);
  for (const auto& variable : variables) {
    if (variable.action == Action::kKept || variable.name == kExportsVariable) continue;
    if (!text.empty()) text += ',';
    text.append(variable.name).append(1, ':').append(to_hex(fingerprint(variable.value(local_task))));
  }
  return text;
}

}  // namespace

ExportRecord::ExportRecord(const Environment& environment) {
  const auto step_tag = environment.get(kStepTagVariable);
  const auto exports = environment.get(kExportsVariable);
  if (!step_tag || !exports) return;
  step_tag_ = *step_tag;
  for (const auto item : split(*exports, ',')) {
    const auto colon = item.find(':');
    if (colon == std::string_view::npos || exports_.size() == kMaxExports) continue;
    const auto mark = parse_hex<std::uint32_t>(item.substr(colon + 1));
    if (mark) exports_.emplace_back(item.substr(0, colon), *mark);
  }
}

bool ExportRecord::is_ours(std::string_view name, std::string_view value) const {
  for (const auto& [ours, mark] : exports_) {
    if (ours == name) return mark == fingerprint(value);
  }
  return false;
}

bool ExportRecord::has_set(std::string_view name) const {
  return std::any_of(exports_.begin(), exports_.end(), [name](const auto& entry) { return entry.first == name; });
}

std::string ExportRecord::with(std::string_view name, std::string_view value) const {
  auto text = cat({name, ":", to_hex(fingerprint(value))});
  for (const auto& [other, mark] : exports_) {
    if (other != name) text.append(1, ',').append(other).append(1, ':').append(to_hex(mark));
  }
  return text;
}

std::vector<std::string> ExportRecord::unchanged(const Environment& environment) const {
  std::vector<std::string> names;
  if (step_tag_.empty()) return names;
  for (const auto& [name, mark] : exports_) {
    const auto value = environment.get(name);
    // Slurm sets or removes these anew at each step (or srun, with us in it, the last one): what is there now is of
    // this step.
    const bool from_slurm =
        name == kTasksPerNodeVariable ||
        std::find(kSlurmGpuVariables.begin(), kSlurmGpuVariables.end(), name) != kSlurmGpuVariables.end();
    if (value && fingerprint(*value) == mark && !from_slurm) names.push_back(name);
  }
  for (const auto name : {kStepTagVariable, kExportsVariable, kSettingsVariable}) {
    if (environment.has(name)) names.emplace_back(name);
  }
  return names;
}

void renew_exports(std::vector<PlannedVariable>& variables, std::size_t first, std::size_t count) {
  std::vector<std::string> values;
  values.reserve(count);
  for (auto task = first; task < first + count; ++task) values.push_back(write_exports(variables, task));
  auto at = std::find_if(variables.begin(), variables.end(),
                         [](const PlannedVariable& variable) { return variable.name == kExportsVariable; });
  if (at == variables.end()) {
    at = variables.emplace(at);
    at->name = kExportsVariable;
    at->from = "checksums: tell our values from yours";
  }
  at->values = std::move(values);
}

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
    } else {
      variable.is_users = true;
      variable.action = is_asked ? Action::kReplaced : Action::kKept;
      variable.why = is_asked ? "asked for by option or SLURM_BOOTSTRAP_* variable" : "set by the user";
    }
  }
  variables_.push_back(std::move(variable));
}

namespace {

// "libbootstrap.so" of "/usr/lib/libbootstrap.so.0".
std::string_view stem(std::string_view path) {
  const auto name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  const auto end = name.find(".so");
  return end == std::string_view::npos ? name : name.substr(0, end + 3);
}

}  // namespace

std::string append_preload(std::string_view current, std::string_view library) {
  for (const auto part : split(current, ':')) {
    for (const auto entry : split(part, ' ')) {
      if (!entry.empty() && stem(entry) == stem(library)) return std::string(current);
    }
  }
  return cat({current, current.empty() ? "" : ":", library});
}

}  // namespace bootstrap
