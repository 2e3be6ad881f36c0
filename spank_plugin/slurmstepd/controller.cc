// What one slurmstepd keeps between its hooks: the plan of the step on this node, or the reason why there is none.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/controller.h"

#include <unistd.h>

#include <algorithm>

#include "core/plan/explain.h"
#include "core/plan/framework_rules.h"
#include "core/plan/gpu_variables.h"
#include "core/util/text.h"
#include "hook_guard.h"
#include "probe/cpu_affinity.h"
#include "probe/file_permissions.h"
#include "probe/read_network.h"
#include "slurmstepd/apply.h"
#include "slurmstepd/gpu_view.h"
#include "slurmstepd/preload_path.h"
#include "slurmstepd/stepd_facts.h"
#include "spank_options.h"
#include "tools/horovod_server/start.h"

namespace bootstrap {

StepController& StepController::current() {
  static auto* const session = new StepController;  // never freed: see spank_options.cc
  return *session;
}

int StepController::prepare_step(spank_t spank, std::optional<std::uint32_t> step) {
  holds_first_node_ = item(spank, S_JOB_NODEID).value_or(0) == 0;

  const auto* const entries = job_environment(spank);
  const auto environment = Environment::from_entries(entries);
  const auto found = gather_step_id(spank, environment);
  if (!step || entries == nullptr || !found) {
    // Whether the step asked is not known here; each task can tell.
    log_info(cat({"bootstrap: Slurm did not provide the environment or the ids of a step: nothing is set"}));
    return fail_all_tasks(false);
  }
  const auto& id = *found;
  step_ = to_string(id);
  const auto decision = read_decision(environment.get(kDecisionVariable).value_or(""), id);
  has_asked_ = decision && decision->asked == Asked::kStrongly;
  if (const auto& wrong = site_error(); wrong && !has_asked_) log_info(cat({"bootstrap: ", wrong->message}));
  if (!decision || decision->set_up == SetUp::kNothing) {
    leave_alone(spank, environment);
    if (has_asked_) {
      decision_ = *decision;
      failure_reporter_.prepare(environment);
      error_ = Error{};  // srun has said why
      return kAccepted;
    }
    if (decision && decision->is_observed) log_info(cat({"bootstrap: StepId=", step_, ": ", decision->reason}));
    if (!decision && user_choice({}).asked != Asked::kUnasked) {
      warnings_.emplace_back(
          "srun did not say whether this step is set up, so that nothing is set: its plugin is of another "
          "version, or --export keeps the variables that begin with SLURM_BOOTSTRAP_ from this component");
    }
    return kAccepted;
  }
  decision_ = *decision;
  // srun sees kinds of GPUs only where the user named one. Nodes with MIG have it alike.
  const auto list = read_gpu_list(environment);
  if (decision_.asked == Asked::kUnasked && list && list->has_mig) {
    leave_alone(spank, environment);
    log_info(cat({"bootstrap: StepId=", step_, ": not set up: Slurm gave it MIG instances"}));
    return kAccepted;
  }
  failure_reporter_.prepare(environment);
  const auto collected = collect_settings(environment);
  const bool is_refused = is_strong() && collected.error;
  if (is_refused) error_is_local_ = collected.is_sites;
  auto planned = is_refused ? Status(fail(*collected.error)) : plan_step(spank, environment, collected.settings);
  if (planned) {
    if (collected.error) plan_->warnings.push_back(collected.error->message);
  } else if (is_strong()) {
    error_ = planned.error();
  } else {
    // Nobody asked this step to end.
    warnings_.push_back(cat({planned.error().message, "; the tasks of this node start as without the plugin"}));
    plan_.reset();
    leave_alone(spank, environment);
  }
  return kAccepted;
}

bool StepController::is_strong() const { return decision_.asked == Asked::kStrongly; }

// In user_init this holds for all tasks of the node, and for TaskEpilog and --task-epilog, which no hook precedes.
void StepController::leave_alone(spank_t spank, const Environment& environment) {
  for (const auto& name : inherited_to_unset(environment)) unset_task_variable(spank, name);
}

Status StepController::plan_step(spank_t spank, const Environment& environment, const Settings& settings) {
  auto facts = gather_facts(spank, environment);
  if (!facts) {
    // Each node checks the places of its own tasks, and asks its own slurmstepd: the first one may have found nothing
    // wrong.
    const auto code = facts.error().code;
    error_is_local_ = code == ErrorCode::kMisplaced || code == ErrorCode::kUnavailable;
    return fail(facts.error());
  }
  facts->decision = decision_;
  const auto& ranks = facts->local_ranks;
  step_ = to_string(facts->id);
  holds_first_node_ = std::find(ranks.begin(), ranks.end(), Rank{0}) != ranks.end();
  if (needs_topology(*facts, settings)) gather_topology(*facts, settings);
  gather_network(*facts, settings);
  facts->can_serve = may_access(rendezvous_program(settings), X_OK);
  auto plan = make_step_plan(*facts, settings);
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
  for (const auto& held : {hold_port(*plan, *facts, settings), hold_worker_ports(*plan, *facts),
                           open_rendezvous(*plan, *facts, settings)}) {
    if (!held && is_strong()) return fail(held.error());
    if (!held) plan->warnings.push_back(held.error().message);
  }
  if (plan->gpus) gpu_order_.prepare(*plan->gpus, facts->topology);
  facts_ = std::move(*facts);
  settings_ = settings;
  if (settings.preload.value) preload_ = check_preload(settings);
  plan_ = std::move(*plan);
  // In a contained user_init it would be lost with the process.
  if (runs_in_slurmstepd()) common_.put(spank, *plan_);
  return {};
}

Status StepController::hold_port(StepPlan& plan, const StepFacts& facts, const Settings& settings) {
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

// As MASTER_PORT, for the servers of TensorFlow that the tasks of this node are to start.
Status StepController::hold_worker_ports(const StepPlan& plan, const StepFacts& facts) {
  if (!runs_in_slurmstepd()) return {};
  for (const auto port : plan.worker_ports) {
    auto claim = PortClaim::take(port);
    if (!claim) {
      error_is_local_ = true;
      return fail(claim.error().code,
                  cat({"TF_CONFIG: ", facts.layout.host_of(facts.local_ranks.front()), ": ", claim.error().message,
                       "; start the step again, or choose other ports with --bootstrap-port-range"}));
    }
    worker_claims_.push_back(std::move(*claim));
  }
  return {};
}

// The socket is open before any task is there, so that a rank that is early waits in its queue.
Status StepController::open_rendezvous(StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  if (!runs_in_slurmstepd()) plan.served_port.reset();
  if (!plan.served_port) return {};
  auto program = open_program(rendezvous_program(settings));
  auto listener =
      program ? open_listener({&*plan.served_port, 1}, facts.master_ip) : Result<Listener>(fail(program.error()));
  if (listener) {
    rendezvous_ = std::move(*listener);
    server_program_ = std::move(*program);
    return {};
  }
  plan.served_port.reset();
  error_is_local_ = true;
  return fail(listener.error().code, cat({"HOROVOD_GLOO_RENDEZVOUS_PORT on ", facts.layout.host_of(0), ": ",
                                          listener.error().message, "; start the step again"}));
}

// By rank 0's own process, so that the server is in the cgroup of the step and runs as the user.
void StepController::start_rendezvous(const Place& place) {
  if (place.rank != 0 || !rendezvous_.socket.is_open()) return;
  const auto started = start_server({.program = rendezvous_program(settings_),
                                     .program_file = server_program_.get(),
                                     .listener = rendezvous_.socket.get(),
                                     .step = step_,
                                     .ranks = facts_->layout.size(),
                                     .while_process = ::getppid(),
                                     .hosts = hosts_of_ranks(*facts_, settings_, *plan_)});
  if (!started) plan_->warnings.push_back(cat({"Horovod's ranks cannot meet: ", started.error().message}));
}

bool StepController::speaks_for_step(std::uint32_t task) const {
  return task == 0 && (holds_first_node_ || error_is_local_);
}

int StepController::note_task(spank_t spank) {
  // All tasks are forked: rank 0 has its own, and a server that has gone must not be hidden.
  rendezvous_.socket.reset();
  const auto task = local_task_id(spank);
  const auto process = task_process(spank);
  if (process) failure_reporter_.note_task(*process);
  if (!plan_ || !plan_->gpus || !task || !process || *task >= facts_->local_ranks.size()) return kAccepted;
  gpu_order_.note_task(*plan_->gpus, facts_->layout.place(facts_->local_ranks[*task]).local_rank, *process);
  return kAccepted;
}

int StepController::start_prepared_task(spank_t spank) {
  const auto task = local_task_id(spank);
  if (!task) {
    if (!plan_ && !error_) return kAccepted;
    const auto line = cat({"StepId=", step_, ": Slurm did not provide the number of a task on ", own_host()});
    if (is_strong()) {
      log_error(cat({"bootstrap: ", line}));
      return abort_task();
    }
    common_.withdraw(spank);
    log_warning(cat({line, "; it starts as without the plugin"}));
    return kAccepted;
  }
  if (started_task_ == task) return kAccepted;  // listed twice in plugstack.conf
  started_task_ = task;
  if (!plan_ && !error_) {
    if (*task == 0 && (holds_first_node_ || error_is_local_)) {
      for (const auto& warning : warnings_) log_warning(cat({"StepId=", step_, ": ", warning}));
    }
    return kAccepted;
  }
  const auto started = error_ ? Status(fail(*error_)) : start_rank(spank, *task);
  if (!started && !is_strong()) {
    common_.withdraw(spank);
    log_warning(cat({"StepId=", step_, ": ", started.error().message, "; the task starts as without the plugin"}));
    return kAccepted;
  }
  if (!started) {
    // A plan that failed, failed for all nodes alike: one of them speaks. A task that cannot be set up speaks itself.
    const auto& why = started.error().message;
    if (!why.empty() && (!error_ || speaks_for_step(*task))) log_error(cat({"bootstrap: StepId=", step_, ": ", why}));
    return abort_task();
  }
  return kAccepted;
}

// This is the task's own copy of the plan: what is found out here is of this task alone.
Status StepController::start_rank(spank_t spank, std::uint32_t task) {
  const auto& ranks = facts_->local_ranks;
  if (task >= ranks.size()) {
    return fail(ErrorCode::kDisagreement,
                cat({"Slurm starts local task ", std::to_string(task), " of ", std::to_string(ranks.size())}));
  }
  const auto& place = facts_->layout.place(ranks[task]);
  auto sight = finalize_gpus(spank, task, place);
  if (!sight) return fail(sight.error());
  finalize_frameworks(spank, task, std::move(*sight));
  start_rendezvous(place);
  auto applied = apply(spank, *plan_, common_, settings_, task, place.rank);
  if (!applied) return applied;
  if (settings_.preload.value) {
    const auto preloaded = preload_ ? preload(spank, settings_) : preload_;
    if (!preloaded && task == 0) log_warning(cat({"StepId=", step_, ": ", preloaded.error().message}));
  }
  if (place.rank != 0) return {};
  for (const auto& warning : plan_->warnings) log_warning(cat({"StepId=", step_, ": ", warning}));
  if (settings_.explain.value) {
    print_to_stderr(explain_text(*facts_, settings_, decision_.reason, *plan_));
  }
  return {};
}

// What the task has of the GPUs, with its copy of the plan brought in line.
Result<TaskObservation> StepController::finalize_gpus(spank_t spank, std::uint32_t task, const Place& place) {
  TaskObservation sight;
  sight.has_planned_gpus = true;
  if (!plan_->gpus) return sight;
  if (plan_->gpus->is_untouched) {
    const auto list = task_variable(spank, std::string(plan_->gpus->kind().variable).c_str());
    if (list && *list != plan_->gpus->list.text()) forget_own_gpu(*plan_, task);
    return sight;
  }
  if (gpu_order_.apply_to(*plan_->gpus)) {
    sight.has_planned_gpus = false;
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
  sight.has_planned_gpus = sight.has_planned_gpus && view->is_as_planned;
  sight.gpus = std::move(*view);
  return sight;
}

void StepController::finalize_frameworks(spank_t spank, std::uint32_t task, TaskObservation sight) {
  const auto number = [&](const char* name) {
    return static_cast<std::uint32_t>(parse_unsigned(task_variable(spank, name).value_or(""), UINT32_MAX).value_or(0));
  };
  sight.cores = static_cast<std::uint32_t>(cores_of(0).count());
  sight.cores_of_node = number("SLURM_CPUS_ON_NODE");
  sight.cores_asked = number("SLURM_CPUS_PER_TASK");
  refine_frameworks(*plan_, *facts_, settings_, task, sight);
}

int StepController::note_exit(spank_t spank) {
  const auto task = local_task_id(spank);
  const auto status = item(spank, S_TASK_EXIT_STATUS);
  if (!task || !status) return kAccepted;
  if (error_ && *status != 0) failure_reporter_.send({.local_rank = *task, .host = "-", .is_refused = true});
  if (!plan_ || *task >= facts_->local_ranks.size()) return kAccepted;
  const auto& place = facts_->layout.place(facts_->local_ranks[*task]);
  if (facts_->layout.size() == 1) return kAccepted;  // srun's own line says as much
  failure_reporter_.send({.rank = place.rank,
                          .local_rank = place.local_rank,
                          .host = facts_->layout.host_of(place.rank),
                          .wait_status = static_cast<std::int32_t>(*status)});
  return kAccepted;
}

int StepController::end() {
  rendezvous_.socket.reset();
  worker_claims_.clear();
  claim_.release();
  return kAccepted;
}

}  // namespace bootstrap
