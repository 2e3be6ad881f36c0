// Whole environments that a hostile user could give slurmstepd: a plan that keeps its promises, or an error.
// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include "core/plan/explain.h"
#include "core/plan/plan.h"
#include "core/util/text.h"
#include "property.h"

namespace {

constexpr std::size_t kMaxRanksHere = 4096;

bootstrap::Environment base() {
  bootstrap::Environment environment;
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"SLURM_JOB_ID", "12"},
                                                                  {"SLURM_STEP_ID", "0"},
                                                                  {"SLURM_STEP_NODELIST", "n[1-2]"},
                                                                  {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                                                                  {"SLURM_STEP_NUM_TASKS", "4"},
                                                                  {"SLURM_PROCID", "0"},
                                                                  {"SLURM_STEP_GPUS", "0,1"}}) {
    environment.set(name, value);
  }
  return environment;
}

void check_plan(const bootstrap::OwnPlan& own) {
  const auto& variables = own.task.variables;
  check(variables.size() <= 40, "at most 40 variables");
  std::set<std::string> names;
  std::size_t bytes = 0;
  for (const auto& variable : variables) {
    check(names.insert(variable.name).second, "each name once");
    if (variable.action != bootstrap::Action::kKept) bytes += variable.name.size() + variable.value.size() + 2;
  }
  check(bytes <= 4096, "and 4 KiB in all");
}

}  // namespace

// "NAME=VALUE\0NAME=VALUE..." on top of the environment of a real step.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto environment = base();
  for (const auto entry : bootstrap::split(as_text(data, size), '\0')) {
    const auto equals = entry.find('=');
    if (equals != std::string_view::npos) environment.set(entry.substr(0, equals), entry.substr(equals + 1));
  }
  (void)bootstrap::inherited_to_unset(environment);
  const auto task = bootstrap::read_own_plan(environment);
  if (!task) {
    check(!task.error().message.empty(), "an error has a message");
    return 0;
  }
  check_plan(*task);
  if (task->facts.layout.size() > kMaxRanksHere) return 0;
  bootstrap::ExplainContext context;
  context.verdict = task->verdict;
  context.is_set_up = task->is_set;
  context.shows_all = true;
  (void)explain_text(task->facts, task->settings, task->step, {&task->task, 1}, context);
  const auto json = explain_json(task->facts, task->settings, task->step, task->task, context);
  for (const char character : json) {
    check(character == '\n' || (character >= 0x20 && character < 0x7f), "JSON is printable ASCII");
  }
  return 0;
}
