// task_init, in the forked child that becomes the task: it gets the variables of the plan, or ends with a reason.
// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "core/plan/explain.h"
#include "core/plan/frameworks.h"
#include "core/plan/node_gpus.h"
#include "core/settings/variables.h"
#include "core/step/step_id.h"
#include "core/util/text.h"
#include "probe/own_process.h"
#include "slurmstepd/step_on_node.h"
#include "slurmstepd/task_environment.h"
#include "slurmstepd/task_gpus.h"
#include "spank_api.h"

namespace bootstrap {
namespace {

constexpr int kStderrDrainTime = 300;  // milliseconds; 10 to 50 are usual

// What failed may have been an allocation, so this makes none.
void report_earlier_failure(spank_t spank) noexcept {
  constexpr const char* kSentence =
      "cannot set up the tasks of %s, because the plugin failed there earlier; the log of slurmd has the reason";
  const char* const named = std::getenv("SLURMD_NODENAME");
  const char* const host = named == nullptr ? "a node" : named;
  std::array<char, 512> text{};
  (void)std::snprintf(text.data(), text.size(), kSentence, host);
  const auto job = item(spank, S_JOB_ID);
  const auto step = item(spank, S_JOB_STEPID);
  if (job && step) return slurm_error("bootstrap: StepId=%u.%u: %s", *job, *step, text.data());
  slurm_error("bootstrap: %s", text.data());
}

// What explain, srun -v and SLURM_BOOTSTRAP_DEBUG=1 print of a step that is set up: the table, or one line for each
// decision. `notes`: of this task.
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

}  // namespace

int abort_task() noexcept {
  // srun ends the step on the first exit status that is not 0, and drops what the tasks wrote and it has not read by
  // then: the sentence of the task that printed it. So all tasks wait for it to arrive. This is the child that was to
  // become the program; nothing else waits for it.
  (void)::poll(nullptr, 0, kStderrDrainTime);
  // To return -1 would do this only for a plugin that plugstack.conf calls `required`; for an `optional` one Slurm
  // drops the -1 and starts the program. Slurm itself ends the child this way when a required plugin fails.
  ::_exit(1);
}

int StepOnNode::task_init(spank_t spank) {
  if (!is_broken_) return is_prepared_ ? current().init_task(spank) : kAccepted;
  // What broke may have happened before user_init knew whether this step asked, or after it took the decision away.
  const auto decision = task_variable(spank, std::string(kDecisionVariable).c_str()).value_or("");
  if (!has_asked_ && !asks_strongly(decision)) {
    if (is_prepared_) current().withdraw(spank);
    for (const auto name : kMessages) unset_task_variable(spank, std::string(name));
    return kAccepted;
  }
  if (!user_knows_ && item(spank, S_TASK_ID).value_or(0) == 0) {
    report_earlier_failure(spank);
  }
  return abort_task();
}

int StepOnNode::fail_task(spank_t spank) noexcept {
  if (has_asked_) return abort_task();
  if (is_prepared_) current().withdraw(spank);
  return kAccepted;
}

void StepOnNode::withdraw(spank_t spank) const {
  if (plan_) withdraw_task_environment(spank, *plan_);
}

int StepOnNode::init_task(spank_t spank) {
  const auto task = item(spank, S_TASK_ID);
  if (!task) {
    if (!plan_ && !error_) return kAccepted;
    return give_up(spank, cat({"Slurm did not provide the number of a task on ", own_host()}));
  }
  if (started_task_ == task) return kAccepted;  // listed twice in plugstack.conf
  started_task_ = task;
  if (!plan_ && !error_) {
    if (reports_for_step(*task)) {
      for (const auto& warning : warnings_) log_warning(step_, warning);
    }
    return kAccepted;
  }
  if (error_) {
    // A plan fails on all nodes alike: one of them reports it.
    if (!error_->message.empty() && reports_for_step(*task)) log_error(step_, error_->message);
    return abort_task();
  }
  const auto started = set_up_task(spank, *task);
  if (started) return kAccepted;
  return give_up(spank, cat({"cannot set up a task on ", own_host(), ": ", started.error().message}));
}

int StepOnNode::give_up(spank_t spank, const std::string& why) const {
  if (is_strong()) {
    log_error(step_, why);
    return abort_task();
  }
  withdraw(spank);
  log_warning(step_, cat({why, "; the task starts as without the plugin"}));
  return kAccepted;
}

// This is the task's own copy of the plan: what is found out here is of this task alone.
Status StepOnNode::set_up_task(spank_t spank, std::uint32_t task) {
  const auto& ranks = facts_->local_ranks;
  if (task >= ranks.size()) {
    return fail(ErrorCode::kDisagreement, cat({"Slurm starts local task ", std::to_string(task), " on a node with ",
                                               counted(ranks.size(), "task")}));
  }
  const auto& place = facts_->layout.place(ranks[task]);
  auto observed = finalize_gpus(spank, task, place);
  if (!observed) return fail(observed.error());
  finalize_frameworks(spank, task, *observed);
  auto applied = set_task_environment(spank, *plan_, settings_, task, place.rank);
  if (!applied) return applied;
  if (settings_.preload.value) {
    const auto preloaded = preload_ ? preload(spank, settings_) : preload_;
    if (!preloaded && task == 0) log_warning(step_, preloaded.error().message);
  }
  if (reports_for_step(task)) {
    for (const auto& warning : plan_->warnings) log_warning(step_, warning);
  }
  if (place.rank != 0 || !is_explained(*facts_, settings_)) return {};
  const auto near = plan_->gpus && observed->gpus ? cores_near(*plan_->gpus, *observed->gpus) : CpuSet();
  const auto cores = cores_of(0);
  std::vector<std::string> notes{note_far_gpu(*facts_, 0, cores, near)};
  if (is_one_core(cores)) notes.push_back(note_one_core(*facts_, *plan_, 0));
  std::erase(notes, "");
  explain_plan(spank, *facts_, settings_, *plan_, notes);
  return {};
}

// What the task has of the GPUs, with its copy of the plan brought in line.
Result<TaskObservation> StepOnNode::finalize_gpus(spank_t spank, std::uint32_t task, const Place& place) {
  TaskObservation observed;
  observed.has_planned_gpus = true;
  if (!plan_->gpus) return observed;
  if (plan_->gpus->is_untouched) {
    const auto list = task_variable(spank, std::string(plan_->gpus->kind().variable).c_str());
    if (list && *list != plan_->gpus->list.text()) forget_own_gpu(*plan_, task);
    return observed;
  }
  if (gpu_order_.apply_to(*plan_->gpus)) {
    observed.has_planned_gpus = false;
    // A table shows all tasks of the node; without one, each task has to know no more than its own.
    const bool shows_table = settings_.explain.value && place.rank == 0;
    if (shows_table) refresh_gpu_variables(*plan_, *facts_);
    if (!shows_table) set_gpu_view(*plan_, task, place.rank, view_of(*plan_->gpus, place.local_rank));
  }
  auto view = look_at_gpus(spank, *plan_, settings_, task, place);
  if (!view) return fail(view.error());
  if (settings_.cpu_near.value) {
    const auto bound = bind_near(*plan_->gpus, *view);
    if (!bound)
      plan_->warnings.push_back(
          cat({setting_text("cpu", settings_.cpu_near.source, "near"), ": ", bound.error().message}));
  }
  observed.has_planned_gpus = observed.has_planned_gpus && view->is_as_planned;
  observed.gpus = std::move(*view);
  return observed;
}

void StepOnNode::finalize_frameworks(spank_t spank, std::uint32_t task, TaskObservation observed) {
  const auto number = [&](const char* name) {
    return parse_unsigned<std::uint32_t>(task_variable(spank, name).value_or("")).value_or(0);
  };
  // Only OMP_NUM_THREADS is made of these.
  if (plan_->frameworks[static_cast<std::size_t>(Framework::kOpenmp)]) {
    observed.cores = static_cast<std::uint32_t>(cores_of(0).count());
    observed.cores_of_node = number("SLURM_CPUS_ON_NODE");
    observed.cores_asked = number("SLURM_CPUS_PER_TASK");
  }
  refine_frameworks(*plan_, *facts_, settings_, task, observed);
}

}  // namespace bootstrap
