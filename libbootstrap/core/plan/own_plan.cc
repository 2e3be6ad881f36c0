// The plan as a task itself sees it, from nothing but its environment: for the library and the command.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/own_plan.h"

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

std::vector<std::string> find_differences(const Environment& environment, const StepPlan& step,
                                          const Variables& variables) {
  std::vector<std::string> differences;
  const ExportRecord ours(environment);
  for (const auto& variable : variables) {
    // What a framework reads may depend on what slurmstepd alone knew; the plan has it as it is here.
    if (variable.action == Action::kKept || variable.name == kExportsVariable) continue;
    const auto value = environment.get(variable.name);
    if (step.gpus && variable.name == step.gpus->kind().variable) {
      // What it was is known by its checksum alone: the plan of a task starts from the list that it sees.
      if (value && !ours.is_ours(variable.name, *value)) {
        differences.push_back(cat({variable.name, " is ", quote(*value), " in this process, not as it was set"}));
      }
      continue;
    }
    if (value == variable.value) continue;
    differences.push_back(cat({variable.name, value ? cat({" is ", quote(*value)}) : std::string(" is not set"),
                               " in this process, not ", quote(variable.value)}));
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
    decision.reason = cat({setting_text(settings, "mode"), " switches it off"});
    return verdict(decision, {});
  }
  if (facts.id.launcher == Launcher::kMpirun) {
    decision.reason = "the plugin does not set up what mpirun starts";
    return verdict(decision, "preload libbootstrap.so to set it up");
  }
  decision.reason = "no plugin set up this step (srun -v says why where srun --help has --bootstrap)";
  return verdict(decision, "use --bootstrap=on, or without the plugin start slurm-bootstrap run PROGRAM");
}

}  // namespace

Result<OwnPlan> read_own_plan(const Environment& environment, const MpirunContext& around) {
  auto facts = read_task_facts(environment, around);
  if (!facts) return fail(facts.error());
  const bool is_set = environment.get(kStepTagVariable) == step_tag(facts->id);
  auto settings = read_task_settings(environment, is_set);
  if (!settings) return fail(settings.error());
  if (is_set) {
    const auto record = environment.get(kSettingsVariable).value_or("");
    facts->decision.set_up = read_set_up(record);
    facts->is_preloaded = record.find(kSetByPreload) != std::string_view::npos;
    // torchrun's variables are set in steps that ask, too. Only a world is known to be unasked.
    if (facts->decision.set_up == SetUp::kWorld) facts->decision.asked = Asked::kUnasked;
  }
  auto step = plan_step(*facts, *settings);
  if (!step) return fail(step.error());
  auto task = plan_task(*step, *facts, *settings, assumed_task(*step, *facts, 0));
  auto verdict = verdict_of(*facts, *settings, is_set);
  auto differences = is_set ? find_differences(environment, *step, task.variables) : std::vector<std::string>();
  return OwnPlan{.facts = std::move(*facts),
                 .settings = std::move(*settings),
                 .step = std::move(*step),
                 .task = std::move(task),
                 .verdict = std::move(verdict),
                 .is_set = is_set,
                 .differences = std::move(differences)};
}

bool has_our_gpu_list(const OwnPlan& own) {
  const auto& environment = own.facts.environment;
  const ExportRecord ours(environment);
  if (!own.step.gpus || ours.step_tag().empty()) return true;
  const std::string name(own.step.gpus->kind().variable);
  const auto list = environment.get(name);
  if (ours.has_set(name)) return !list || ours.is_ours(name, *list);
  // In an unasked world the list stays Slurm's, of one GPU for each task of the node, and is not in the
  // record; where another plugin gave each task a list of its own, no GPU is named.
  const auto& place = own.facts.layout.place(own.facts.ranks_here.front());
  return ours.has_set(kGpuVariable) && own.step.gpus->list.entries.size() >= place.local_size;
}

}  // namespace bootstrap
