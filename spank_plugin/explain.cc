// What explain, srun -v and SLURM_BOOTSTRAP_DEBUG=1 print, in srun and in the task of rank 0.
// SPDX-License-Identifier: Apache-2.0
#include "explain.h"

#include <unistd.h>

#include <utility>

#include "core/plan/explain.h"
#include "core/settings/variables.h"
#include "core/util/text.h"

namespace bootstrap {

void report_decision(const StepId& id, const Activation& activation, const Settings& settings) {
  const auto step = to_string(id);
  const auto line = activation.line();
  const bool is_set_up = activation.decision.set_up != SetUp::kNothing;
  const bool is_debug = process_settings(read_entries(environ, UnknownVariables::kSkip)).debug.value;
  if (!is_set_up && activation.decision.asked == Asked::kStrongly) {
    log_error(step, line);  // the nodes refuse the step, and are silent
  } else if (settings.explain.value ? !is_set_up : is_debug) {
    print_to_stderr(cat({step_prefix(id), line, "\n"}));
  } else if (activation.needs_warning) {
    log_warning(step, line);
  } else {
    log_verbose(step, line);
  }
}

bool is_explained(const StepFacts& facts, const Settings& settings) {
  return settings.explain.value || facts.decision.is_verbose || process_settings(facts.environment).debug.value;
}

void explain_plan(spank_t spank, const StepFacts& facts, const Settings& settings, const StepPlan& plan,
                  const std::vector<std::string>& notes) {
  if (!settings.explain.value) {
    auto lines = decision_lines(facts, plan);
    lines.insert(lines.end(), notes.begin(), notes.end());
    for (const auto& line : lines) print_to_stderr(cat({step_prefix(facts.id), line, "\n"}));
    return;
  }
  const auto slurm = text_item(spank, S_SLURM_VERSION);
  ExplainContext context{.verdict = verdict(facts.decision, hint_of(facts.decision)),
                         .shows_all = process_settings(facts.environment).debug.value,
                         .notes = step_notes(facts, plan),
                         .versions = cat({"plugin ", kVersion, slurm.empty() ? "" : ", Slurm ", slurm})};
  context.notes.insert(context.notes.end(), notes.begin(), notes.end());
  print_to_stderr(explain_text(facts, settings, plan, context));
}

}  // namespace bootstrap
