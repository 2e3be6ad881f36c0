// What one slurmstepd keeps between its hooks: the plan of the step on this node, or the reason why there is none.
// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <unistd.h>

#include <algorithm>

#include "apply.h"
#include "core/explain.h"
#include "core/text.h"
#include "facts.h"
#include "guard.h"
#include "options.h"

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
  const auto scope = decide_scope(environment, settings ? *settings : right_settings(environment));
  if (!scope.applies) {
    // In user_init this holds for all tasks of the node, and for TaskEpilog and --task-epilog, which no hook precedes.
    for (const auto& name : inert_removals(environment)) unset_task_variable(spank, name);
    if (settings && settings->explain.value) {
      explanation_ = cat({"bootstrap: step ", step_, ": nothing is set: ", scope.why, "\n"});
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
  ranks_ = facts->local_ranks;
  step_ = to_string(facts->id);
  holds_first_node_ = std::find(ranks_.begin(), ranks_.end(), Rank{0}) != ranks_.end();
  auto plan = make_plan(*facts, settings);
  if (!plan) return fail(plan.error());
  const auto held = hold_port(*plan, *facts, settings);
  if (!held) return fail(held.error());
  if (settings.explain.value && holds_first_node_) {
    explanation_ = explain_text(*facts, settings, decide_scope(environment, settings), *plan);
  }
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
    plan.warning = cat({"MASTER_PORT=", std::to_string(port), ", which you set, on ", host, ": ", claim.error().message,
                        "; if this step is to listen there, choose another one"});
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

int Session::start_task(spank_t spank) {
  if (!is_prepared_) return kAccepted;
  const auto task = local_task_id(spank);
  if (is_broken_ || !task) return plan_ || error_ || is_broken_ ? end_task() : kAccepted;
  if (started_task_ == task) return kAccepted;  // listed twice in plugstack.conf
  started_task_ = task;
  if (!plan_ && !error_) {
    // Each component of a heterogeneous step has a first node; the step has one rank 0.
    if (!explanation_.empty() && task_variable(spank, "SLURM_PROCID") == "0") print_to_task(explanation_);
    return kAccepted;
  }
  const auto applied = error_ ? Status(fail(*error_)) : apply_plan(spank, *task);
  if (!applied) {
    // A plan that failed, failed for all nodes alike: one of them speaks. A task that cannot be set up speaks itself.
    if (!error_ || speaks_for_step(*task)) log_error(cat({"bootstrap: job ", step_, ": ", applied.error().message}));
    return end_task();
  }
  return kAccepted;
}

Status Session::apply_plan(spank_t spank, std::uint32_t task) const {
  if (task >= ranks_.size()) {
    return fail(ErrorCode::kDisagreement,
                cat({"Slurm starts local task ", std::to_string(task), " of ", std::to_string(ranks_.size())}));
  }
  auto applied = apply(spank, *plan_, task, ranks_[task]);
  if (!applied) return applied;
  if (ranks_[task] != 0) return {};
  if (!plan_->warning.empty()) log_error(cat({"bootstrap: job ", step_, ": ", plan_->warning}));
  print_to_task(explanation_);
  return {};
}

int Session::end() {
  claim_.release();
  return kAccepted;
}

}  // namespace bootstrap
