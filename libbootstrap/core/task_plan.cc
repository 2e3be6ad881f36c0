// The plan as a task itself sees it, from nothing but its environment: for the library and the command.
// SPDX-License-Identifier: Apache-2.0
#include "core/task_plan.h"

#include "core/frameworks.h"
#include "core/plan_gpus.h"
#include "core/text.h"

namespace bootstrap {
namespace {

// With the plugin in the step its settings came along, the site's among them, which are known nowhere else.
Result<Settings> read_task_settings(const Environment& environment, bool is_set) {
  if (is_set) return read_settings(environment.get(kSettingsVariable).value_or(""));
  Settings settings;
  const auto applied = apply_environment(settings, environment);
  if (!applied) return fail(applied.error());
  return settings;
}

std::vector<std::string> find_differences(const Environment& environment, const Plan& plan) {
  std::vector<std::string> differences;
  const Leftovers ours(environment);
  for (const auto& variable : plan.variables) {
    // What a framework reads may depend on what slurmstepd alone knew; the plan has it as it is here.
    if (variable.action == Action::kKept || variable.name == kExportsVariable) continue;
    const auto value = environment.get(variable.name);
    if (plan.gpus && variable.name == plan.gpus->kind().variable) {
      // What it was can only be told by its checksum: the plan of a task starts from the list that it sees.
      if (value && !ours.is_ours(variable.name, *value)) {
        differences.push_back(cat({variable.name, " is ", quoted(*value), " in this process, not as it was set"}));
      }
      continue;
    }
    if (value == variable.value(0)) continue;
    differences.push_back(cat({variable.name, value ? cat({" is ", quoted(*value)}) : std::string(" is not set"),
                               " in this process, not ", quoted(variable.value(0))}));
  }
  return differences;
}

}  // namespace

Result<TaskPlan> make_task_plan(const Environment& environment, const Surroundings& around) {
  auto facts = read_task_facts(environment, around);
  if (!facts) return fail(facts.error());
  const bool is_set = environment.get(kStampVariable) == stamp(facts->id);
  auto settings = read_task_settings(environment, is_set);
  if (!settings) return fail(settings.error());
  // Whether slurmstepd found the server is known by what came of it.
  if (is_set) facts->can_serve = environment.has("HOROVOD_GLOO_RENDEZVOUS_PORT");
  auto plan = make_plan(*facts, *settings);
  if (!plan) return fail(plan.error());
  if (is_set) {
    adopt_gpu_view(*plan, facts->layout.place(facts->local_ranks.front()), environment);
    adopt_frameworks(*plan, environment);
  }
  if (!is_set) plan->port_to_claim.reset();  // nobody holds it
  auto differences = is_set ? find_differences(environment, *plan) : std::vector<std::string>();
  auto scope = decide_scope(environment, *settings, {}, word_of_srun(environment, facts->id));
  return TaskPlan{std::move(*facts),     std::move(*settings), std::move(scope), std::move(*plan), is_set,
                  std::move(differences)};
}

bool has_our_gpu_list(const TaskPlan& task) {
  const auto& environment = task.facts.environment;
  const Leftovers ours(environment);
  if (!task.plan.gpus || ours.stamp().empty()) return true;
  const std::string name(task.plan.gpus->kind().variable);
  const auto list = environment.get(name);
  return !list || ours.is_ours(name, *list);
}

std::string effective_value(const Plan& plan, std::string_view name) {
  const auto at = plan.find(name);
  if (!at) return {};
  const auto& variable = plan.variables[*at];
  return variable.action == Action::kKept ? variable.previous : variable.value(0);
}

}  // namespace bootstrap
