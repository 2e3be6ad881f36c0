// The variables of a plan, under one rule: a value that the user set for this step is kept if it can be right.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/planned_variables.h"

#include <algorithm>
#include <utility>

#include "core/hardware/gpu_list.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxExports = 256;  // we set at most 40; a longer record is not ours

constexpr std::string_view kAsSet = "as set when this task started";

constexpr std::array kMarks{kStepTagVariable, kExportsVariable, kSettingsVariable};

// "libbootstrap.so" of "/usr/lib/libbootstrap.so.0".
std::string_view stem(std::string_view path) {
  const auto name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  const auto end = name.find(".so");
  return end == std::string_view::npos ? name : name.substr(0, end + 3);
}

}  // namespace

const PlannedVariable* find_variable(const Variables& variables, std::string_view name) {
  const auto at = std::find_if(variables.begin(), variables.end(), [&](const auto& one) { return one.name == name; });
  return at == variables.end() ? nullptr : &*at;
}

bool is_kept(const Variables& variables, std::string_view name) {
  const auto* const variable = find_variable(variables, name);
  return variable != nullptr && variable->action == Action::kKept;
}

std::string effective_value(const Variables& variables, std::string_view name) {
  const auto* const variable = find_variable(variables, name);
  return variable == nullptr ? std::string() : variable->effective();
}

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
    // Slurm sets or removes its lists of GPUs at each step, and the plugin in srun removes our SLURM_NTASKS_PER_NODE,
    // so what is set now is of this step.
    const bool from_slurm =
        name == kTasksPerNodeVariable ||
        std::find(kSlurmGpuVariables.begin(), kSlurmGpuVariables.end(), name) != kSlurmGpuVariables.end();
    if (value && fingerprint(*value) == mark && !from_slurm) names.push_back(name);
  }
  for (const auto name : kMarks) {
    if (environment.has(name)) names.emplace_back(name);
  }
  return names;
}

void add_exports(Variables& variables) {
  constexpr std::size_t kUsualEntry = 32;
  std::string text;
  text.reserve(variables.size() * kUsualEntry);
  for (const auto& variable : variables) {
    if (variable.action == Action::kKept) continue;
    if (!text.empty()) text += ',';
    text.append(variable.name).append(1, ':').append(to_hex(fingerprint(variable.value)));
  }
  variables.push_back({.name = std::string(kExportsVariable),
                       .value = std::move(text),
                       .from = "checksums: tell our values from yours",
                       .is_of_task = true});
}

void VariableList::common(std::string_view name, std::string value, std::string from, bool is_asked) {
  add({.name = std::string(name), .value = std::move(value), .from = std::move(from)}, is_asked);
}

void VariableList::by_place(std::string_view name, const Place& place, std::uint32_t Place::*member, std::string from) {
  add({.name = std::string(name),
       .value = std::to_string(place.*member),
       .from = std::move(from),
       .of_place = member,
       .is_of_task = true},
      false);
  if (last().action != Action::kKept) return;
  // A task that knows no more than its own environment judges by its own value.
  bool fits = last().previous == last().value;
  for (Rank rank = 0; fits && !facts_.is_one_task && rank < facts_.layout.size(); ++rank)
    fits = facts_.layout.place(rank).*member == place.*member;
  if (!fits) replace_users("it is one value for all tasks");
}

void VariableList::fact(std::string_view name, std::string value, std::string from) {
  common(name, std::move(value), std::move(from));
  if (last().previous != last().value) replace_users(cat({"this step has ", last().value}));
}

void VariableList::of_framework(Framework framework, std::string_view name, std::string value, std::string from,
                                bool is_of_task) {
  if (is_left_out(name)) return;
  add({.name = std::string(name),
       .value = std::move(value),
       .from = std::move(from),
       .is_of_task = is_of_task,
       .framework = framework},
      false);
}

void VariableList::own(std::string_view name, std::string value, std::string from, bool is_of_task,
                       std::optional<Framework> framework) {
  if (framework && is_left_out(name)) return;
  push({.name = std::string(name),
        .value = std::move(value),
        .from = std::move(from),
        .is_of_task = is_of_task,
        .framework = framework});
}

void VariableList::add_recorded() {
  if (!is_set_up_) return;
  for (const auto& name : record_.unchanged(facts_.environment)) {
    if (std::find(kMarks.begin(), kMarks.end(), name) != kMarks.end() || find_variable(variables_, name) != nullptr)
      continue;
    own(name, std::string(*facts_.environment.get(name)), std::string(kAsSet), true);
  }
}

void VariableList::replace_users(std::string why) {
  auto& variable = variables_.back();
  if (variable.action != Action::kKept || is_set_up_) return;
  variable.action = Action::kReplaced;
  variable.is_unsuitable = true;
  variable.why = std::move(why);
}

bool VariableList::set_by_user(std::string_view name) const {
  const auto value = facts_.environment.get(name);
  return value && !record_.is_ours(name, *value);
}

void VariableList::add(PlannedVariable variable, bool is_asked) {
  if (const auto current = facts_.environment.get(variable.name)) {
    variable.previous = *current;
    if (record_.is_ours(variable.name, *current)) {
      variable.action = is_set_up_ || *current == kRankPlaceholder ? Action::kSet : Action::kReplaced;
      variable.why = cat({"left over from step ", record_.step_tag().substr(0, record_.step_tag().rfind('.'))});
    } else {
      variable.is_users = true;
      variable.action = is_asked ? Action::kReplaced : Action::kKept;
      variable.why = is_asked ? "asked for by option or SLURM_BOOTSTRAP_* variable" : "set by the user";
    }
  }
  push(std::move(variable));
}

void VariableList::push(PlannedVariable variable) {
  const auto current = is_set_up_ ? facts_.environment.get(variable.name) : std::nullopt;
  if (current && variable.value != *current && record_.is_ours(variable.name, *current)) {
    variable.value = *current;
    variable.of_place = nullptr;
    if (!variable.framework) variable.from = variable.name.starts_with("MASTER_") ? "chosen by srun" : kAsSet;
  }
  variables_.push_back(std::move(variable));
}

std::string append_preload(std::string_view current, std::string_view library) {
  for (const auto part : split(current, ':')) {
    for (const auto entry : split(part, ' ')) {
      if (!entry.empty() && stem(entry) == stem(library)) return std::string(current);
    }
  }
  return cat({current, current.empty() ? "" : ":", library});
}

}  // namespace bootstrap
