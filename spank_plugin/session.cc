// What one slurmstepd keeps between its hooks: the plan of the step on this node, or the reason why there is none.
// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <unistd.h>

#include <algorithm>

#include "apply.h"
#include "core/explain.h"
#include "core/plan_gpus.h"
#include "core/text.h"
#include "facts.h"
#include "gpu_view.h"
#include "guard.h"
#include "options.h"
#include "preload.h"

namespace bootstrap {

Session& Session::current() {
  static auto* const session = new Session;  // never freed: see options.cc
  return *session;
}

int Session::prepare(spank_t spank) {
  if (current_context() != Context::kSlurmstepd || is_prepared_) return kAccepted;  // listed twice in plugstack.conf
  const auto step = item(spank, S_JOB_STEPID);
  if (!step || !is_normal_step(*step)) return kAccepted;
  is_prepared_ = true;
  holds_first_node_ = item(spank, S_JOB_NODEID).value_or(0) == 0;

  const auto* const entries = job_environment(spank);
  if (entries == nullptr) {
    error_ = Error{ErrorCode::kMissing, "Slurm does not tell the environment of the job"};
    return kAccepted;
  }
  const auto environment = Environment::from_entries(entries);
  step_ = to_string(gather_step_id(spank, environment).value_or(StepId{.step = *step}));
  const auto settings = collect_settings(environment);
  program_ = job_program(spank);
  const auto scope = decide_scope(environment, settings ? *settings : right_settings(environment), program_);
  if (!scope.applies) {
    // In user_init this holds for all tasks of the node, and for TaskEpilog and --task-epilog, which no hook precedes.
    for (const auto& name : inert_removals(environment)) unset_task_variable(spank, name);
    if (settings && settings->explain.value) {
      refusal_to_set_ = cat({"bootstrap: step ", step_, ": nothing is set: ", scope.why, "\n"});
    }
    return kAccepted;
  }
  const auto planned = settings ? plan_step(spank, environment, *settings) : Status(fail(settings.error()));
  if (!planned) error_ = planned.error();
  return kAccepted;
}

Status Session::plan_step(spank_t spank, const Environment& environment, const Settings& settings) {
  auto facts = gather_facts(spank, environment);
  if (!facts) {
    // Each node checks the places of its own tasks, and the first one may have found nothing wrong with its own.
    error_is_local_ = facts.error().code == ErrorCode::kMisplaced;
    return fail(facts.error());
  }
  const auto& ranks = facts->local_ranks;
  step_ = to_string(facts->id);
  holds_first_node_ = std::find(ranks.begin(), ranks.end(), Rank{0}) != ranks.end();
  if (needs_topology(*facts, settings)) gather_topology(*facts, settings);
  auto plan = make_plan(*facts, settings);
  if (!plan) {
    error_is_local_ = plan.error().code == ErrorCode::kMisplaced;
    return fail(plan.error());
  }
  if (plan->gpus && plan->gpus->tasks != ranks.size()) {
    error_is_local_ = true;
    return fail(ErrorCode::kUnsupported,
                "components of the step share a node, where each has GPUs of its own and LOCAL_RANK counts over both; "
                "start the step with --bootstrap-gpu=off, and choose the GPUs in the program");
  }
  const auto held = hold_port(*plan, *facts, settings);
  if (!held) return fail(held.error());
  if (plan->gpus) gpu_order_.prepare(*plan->gpus, facts->topology);
  facts_ = std::move(*facts);
  settings_ = settings;
  plan_ = std::move(*plan);
  return {};
}

Status Session::hold_port(Plan& plan, const Facts& facts, const Settings& settings) {
  // In a contained user_init the socket would be closed again before the tasks start.
  if (!runs_in_slurmstepd()) plan.port_to_claim.reset();
  if (!plan.port_to_claim) return {};
  const auto port = *plan.port_to_claim;
  auto claim = PortClaim::take(port);
  if (claim) {
    claim_ = std::move(*claim);
    return {};
  }
  plan.port_to_claim.reset();
  const auto& host = facts.layout.host_of(0);
  if (facts.layout.size() == 1) return {};  // nobody is to be met, and a server would say itself what is wrong
  if (plan.port_is_users) {
    // Two steps of a job that exports MASTER_PORT may run at once, and only one of them need listen.
    plan.warnings.push_back(cat({"MASTER_PORT=", std::to_string(port), ", which you set, on ", host, ": ",
                                 claim.error().message, "; if this step is to listen there, choose another one"}));
    return {};
  }
  error_is_local_ = true;
  return fail(claim.error().code, explain_refused_port(claim.error().message, host, settings));
}

bool Session::speaks_for_step(std::uint32_t task) const { return task == 0 && (holds_first_node_ || error_is_local_); }

int Session::break_down() noexcept {
  is_broken_ = true;
  return kAccepted;
}

int Session::note_task(spank_t spank) {
  const auto task = local_task_id(spank);
  const auto process = task_process(spank);
  if (!plan_ || !plan_->gpus || !task || !process || *task >= facts_->local_ranks.size()) return kAccepted;
  gpu_order_.note_task(*plan_->gpus, facts_->layout.place(facts_->local_ranks[*task]).local_rank, *process);
  return kAccepted;
}

int Session::start_task(spank_t spank) {
  if (!is_prepared_) return kAccepted;
  const auto task = local_task_id(spank);
  if (is_broken_ || !task) return plan_ || error_ || is_broken_ ? end_task() : kAccepted;
  if (started_task_ == task) return kAccepted;  // listed twice in plugstack.conf
  started_task_ = task;
  if (!plan_ && !error_) {
    // Each component of a heterogeneous step has a first node; the step has one rank 0.
    if (!refusal_to_set_.empty() && task_variable(spank, "SLURM_PROCID") == "0") print_to_task(refusal_to_set_);
    return kAccepted;
  }
  const auto started = error_ ? Status(fail(*error_)) : start_rank(spank, *task);
  if (!started) {
    // A plan that failed, failed for all nodes alike: one of them speaks. A task that cannot be set up speaks itself.
    if (!error_ || speaks_for_step(*task)) log_error(cat({"bootstrap: job ", step_, ": ", started.error().message}));
    return end_task();
  }
  return kAccepted;
}

// This is the task's own copy of the plan: what is found out here is of this task alone.
Status Session::start_rank(spank_t spank, std::uint32_t task) {
  const auto& ranks = facts_->local_ranks;
  if (task >= ranks.size()) {
    return fail(ErrorCode::kDisagreement,
                cat({"Slurm starts local task ", std::to_string(task), " of ", std::to_string(ranks.size())}));
  }
  const auto& place = facts_->layout.place(ranks[task]);
  Result<GpuView> view = GpuView();
  if (plan_->gpus) {
    if (gpu_order_.apply_to(*plan_->gpus)) {
      // A table shows all tasks of the node; without one, each task has to know no more than its own.
      const bool shows_table = settings_.explain.value && place.rank == 0;
      if (shows_table) refresh_gpu_variables(*plan_, *facts_);
      if (!shows_table) set_gpu_view(*plan_, task, place.rank, view_of(*plan_->gpus, place.local_rank));
    }
    view = look_at_gpus(spank, *plan_, task, place);
    if (!view) return fail(view.error());
  }
  auto applied = apply(spank, *plan_, task, place.rank);
  if (!applied) return applied;
  if (plan_->gpus && settings_.cpu_near.value) {
    const auto bound = bind_near(*plan_->gpus, *view);
    if (!bound) plan_->warnings.push_back(cat({"--bootstrap-cpu=near: ", bound.error().message}));
  }
  if (settings_.preload.value) {
    const auto preloaded = preload(spank, settings_);
    if (!preloaded && task == 0) log_error(cat({"bootstrap: job ", step_, ": ", preloaded.error().message}));
  }
  if (place.rank != 0) return {};
  for (const auto& warning : plan_->warnings) log_error(cat({"bootstrap: job ", step_, ": ", warning}));
  if (settings_.explain.value) {
    print_to_task(explain_text(*facts_, settings_, decide_scope(facts_->environment, settings_, program_), *plan_));
  }
  return {};
}

int Session::end() {
  claim_.release();
  return kAccepted;
}

}  // namespace bootstrap
