// The rule that decides what becomes of one variable: the user's value is kept, a leftover of ours is replaced.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/leftover_variables.h"

#include <algorithm>

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
    const auto mark = parse_hex(item.substr(colon + 1), UINT32_MAX);
    if (mark) exports_.emplace_back(item.substr(0, colon), static_cast<std::uint32_t>(*mark));
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

void renew_exports(std::vector<PlannedVariable>& variables, const std::vector<std::size_t>& tasks) {
  std::vector<std::string> values;
  values.reserve(tasks.size());
  for (const auto task : tasks) values.push_back(write_exports(variables, task));
  auto at = std::find_if(variables.begin(), variables.end(),
                         [](const PlannedVariable& variable) { return variable.name == kExportsVariable; });
  if (at == variables.end()) {
    at = variables.emplace(at);
    at->name = kExportsVariable;
    at->from = "checksums: tell our values from yours";
  }
  at->values = std::move(values);
}

}  // namespace bootstrap
