// The plan as a task itself sees it, from nothing but its environment: for the library and the command.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/step_plan.h"

#include "core/plan/frameworks.h"
#include "core/plan/node_gpus.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// If the plugin set up the step, it passes on all settings, also the site's, which a task can read nowhere else.
Result<Settings> read_task_settings(const Environment& environment, bool is_set) {
  if (is_set) return read_settings(environment.get(kSettingsVariable).value_or(""));
  Settings settings;
  const auto applied = apply_environment(settings, environment);
  if (!applied) return fail(applied.error());
  return settings;
}

void adopt_decision(StepFacts& facts, std::string_view record) {
  facts.decision.set_up = read_set_up(record);
  facts.is_preloaded = record.find(kSetByPreload) != std::string_view::npos;
  // torchrun's variables are set in steps that ask, too. Only a world is known to be unasked.
  if (facts.decision.set_up == SetUp::kWorld) facts.decision.asked = Asked::kUnasked;
}

// slurmstepd knew more than a task: the cores of all tasks, what Slurm left of the GPUs, the port that srun chose. What
// the user has changed since stays as planned, and is reported as a difference.
void adopt_values(StepPlan& plan, const Environment& environment) {
  constexpr std::string_view kAsSet = "as set when this task started";
  const ExportRecord ours(environment);
  std::erase_if(plan.variables, [&](const PlannedVariable& variable) {
    const auto& name = variable.name;
    const bool is_of_some = variable.framework || (plan.gpus && (name == kGroupVariable || name == kUuidsVariable));
    return is_of_some && variable.action != Action::kKept && !ours.has_set(name);
  });
  for (auto& variable : plan.variables) {
    const auto value = environment.get(variable.name);
    if (!value || variable.value(0) == *value || !ours.is_ours(variable.name, *value)) continue;
    variable.values = {std::string(*value)};
    variable.of_place = nullptr;
    if (!variable.framework) variable.from = variable.name.starts_with("MASTER_") ? "chosen by srun" : kAsSet;
  }
  std::erase_if(plan.variables, [](const PlannedVariable& variable) { return variable.name == kExportsVariable; });
  for (const auto& name : ours.unchanged(environment)) {
    const bool is_mark = name == kStepTagVariable || name == kExportsVariable || name == kSettingsVariable;
    if (is_mark || plan.find(name)) continue;
    plan.variables.push_back(variable_of(name, {std::string(*environment.get(name))}, std::string(kAsSet)));
  }
  std::erase_if(plan.removals, [&](const std::string& name) { return plan.find(name).has_value(); });
  renew_exports(plan.variables, 0, 1);
  if (const auto port = plan.find("MASTER_PORT")) {
    plan.master.port = parse_unsigned<std::uint16_t>(plan.variables[*port].value(0)).value_or(plan.master.port);
    if (plan.port_to_reserve) plan.port_to_reserve = plan.master.port;
  }
}

std::vector<std::string> find_differences(const Environment& environment, const StepPlan& plan) {
  std::vector<std::string> differences;
  const ExportRecord ours(environment);
  for (const auto& variable : plan.variables) {
    // What a framework reads may depend on what slurmstepd alone knew; the plan has it as it is here.
    if (variable.action == Action::kKept || variable.name == kExportsVariable) continue;
    const auto value = environment.get(variable.name);
    if (plan.gpus && variable.name == plan.gpus->kind().variable) {
      // What it was is known by its checksum alone: the plan of a task starts from the list that it sees.
      if (value && !ours.is_ours(variable.name, *value)) {
        differences.push_back(cat({variable.name, " is ", quote(*value), " in this process, not as it was set"}));
      }
      continue;
    }
    if (value == variable.value(0)) continue;
    differences.push_back(cat({variable.name, value ? cat({" is ", quote(*value)}) : std::string(" is not set"),
                               " in this process, not ", quote(variable.value(0))}));
  }
  return differences;
}

std::string verdict_of(const StepFacts& facts, const Settings& settings, bool is_set) {
  Decision decision = facts.decision;
  if (is_set) {
    const auto asks = asking_setting(settings);
    decision.reason = facts.is_preloaded                    ? "the preloaded library does it, without the plugin"
                      : decision.set_up == SetUp::kTorchrun ? "torchrun is the program, with one task on each node"
                      : decision.set_up != SetUp::kWorld    ? cat({asks.empty() ? "an option" : asks, " asks for it"})
                      : settings.when.value == When::kWorld
                          ? "a GPU for each task"
                          : cat({"the site sets when=", when_name(settings.when.value)});
    return verdict(decision, hint_of(decision));
  }
  decision.set_up = SetUp::kNothing;
  if (settings.mode.value == Mode::kOff) {
    decision.reason = cat({setting_text("mode", settings.mode.source, "off"), " switches it off"});
    return verdict(decision, {});
  }
  if (facts.id.launcher == Launcher::kMpirun) {
    decision.reason = "the plugin does not set up what mpirun starts";
    return verdict(decision, "preload libbootstrap.so to set it up");
  }
  decision.reason = "the plugin did not set up this step (srun -v says why)";
  return verdict(decision, "use --bootstrap=on to set it up");
}

}  // namespace

Result<TaskPlan> read_task_plan(const Environment& environment, const MpirunContext& around) {
  auto facts = read_task_facts(environment, around);
  if (!facts) return fail(facts.error());
  const bool is_set = environment.get(kStepTagVariable) == step_tag(facts->id);
  auto settings = read_task_settings(environment, is_set);
  if (!settings) return fail(settings.error());
  if (is_set) adopt_decision(*facts, environment.get(kSettingsVariable).value_or(""));
  auto plan = make_step_plan(*facts, *settings);
  if (!plan) return fail(plan.error());
  if (is_set) adopt_values(*plan, environment);
  if (!is_set) plan->port_to_reserve.reset();  // no process holds it
  auto verdict = verdict_of(*facts, *settings, is_set);
  auto differences = is_set ? find_differences(environment, *plan) : std::vector<std::string>();
  return TaskPlan{.facts = std::move(*facts),
                  .settings = std::move(*settings),
                  .plan = std::move(*plan),
                  .verdict = std::move(verdict),
                  .is_set = is_set,
                  .differences = std::move(differences)};
}

bool has_our_gpu_list(const TaskPlan& task) {
  const auto& environment = task.facts.environment;
  const ExportRecord ours(environment);
  if (!task.plan.gpus || ours.step_tag().empty()) return true;
  const std::string name(task.plan.gpus->kind().variable);
  const auto list = environment.get(name);
  if (ours.has_set(name)) return !list || ours.is_ours(name, *list);
  // In an unasked world the list stays Slurm's, of one GPU for each task of the node, and is not in the
  // record; where another plugin gave each task a list of its own, no GPU is named.
  const auto& place = task.facts.layout.place(task.facts.local_ranks.front());
  return ours.has_set(kGpuVariable) && task.plan.gpus->list.entries.size() >= place.local_size;
}

}  // namespace bootstrap
