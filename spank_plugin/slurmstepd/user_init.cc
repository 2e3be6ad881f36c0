// user_init, once for each node: what srun decided becomes the plan of the step on this node.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "core/settings/variables.h"
#include "core/util/text.h"
#include "probe/own_process.h"
#include "probe/read_gpus.h"
#include "probe/read_network.h"
#include "slurmstepd/step_on_node.h"
#include "slurmstepd/task_environment.h"
#include "spank_api.h"
#include "spank_options.h"

namespace bootstrap {
namespace {

// Slurm goes through all of the environment for each variable that is set or removed.
constexpr std::size_t kMostEntries = 16384;

bool has_too_many(const char* const* entries) {
  std::size_t count = 0;
  for (; entries != nullptr && *entries != nullptr && count <= kMostEntries; ++entries) ++count;
  return count > kMostEntries;
}

Result<std::uint32_t> require_item(spank_t spank, spank_item_t which, std::string_view name) {
  const auto value = item(spank, which);
  if (!value) return fail(ErrorCode::kUnavailable, cat({"Slurm did not provide ", name}));
  return *value;
}

// The id is the same in all components of a heterogeneous step: its job is that of the first one, SLURM_JOB_ID.
Result<StepId> gather_step_id(spank_t spank, const Environment& environment) {
  const auto job = require_item(spank, S_JOB_ID, "the job id");
  if (!job) return fail(job.error());
  const auto step = require_item(spank, S_JOB_STEPID, "the step id");
  if (!step) return fail(step.error());
  const auto named = environment.number("SLURM_JOB_ID");
  // The item is that of the batch step; in srun's steps it is 0, and the variable comes along from the batch script.
  const auto item_restart = item(spank, S_SLURM_RESTART_COUNT).value_or(0);
  const auto restart = environment.number("SLURM_RESTART_COUNT").value_or(0);
  return StepId{.job = std::min(*job, named.value_or(*job)), .step = *step, .restart = std::max(item_restart, restart)};
}

// SPANK's items are preferred to the environment, which users can change; where both are there they must agree.
Result<StepFacts> gather_facts(spank_t spank, const Environment& environment, const StepId& id) {
  const auto count = require_item(spank, S_JOB_LOCAL_TASK_COUNT, cat({"the number of tasks on ", own_host()}));
  if (!count) return fail(count.error());

  LocalTasks local;
  local.component_job = item(spank, S_JOB_ID);
  local.component_size = item(spank, S_JOB_TOTAL_TASK_COUNT);
  local.host = own_host();
  for (std::uint32_t task = 0; task < *count; ++task) {
    const auto rank = item(spank, S_JOB_LOCAL_TO_GLOBAL_ID, task);
    if (!rank)
      return fail(ErrorCode::kUnavailable, cat({"Slurm did not provide the ranks of the tasks on ", own_host()}));
    local.ranks.push_back(*rank);
  }
  auto facts = read_facts(environment, id, local);
  if (!facts) return facts;
  facts->gpu_bind_cure = gpu_bind_default_of(spank).option;
  facts->cores_of_node = item<std::uint16_t>(spank, S_JOB_NCPUS).value_or(0);
  return facts;
}

// In user_init this holds for all tasks of the node, and for TaskEpilog and --task-epilog, which no hook precedes. Only
// task_init replaces srun's placeholder in RANK: it stays where another plugin starts the program first.
void unset_inherited(spank_t spank, const Environment& environment, bool asks, bool keeps_layout = false) {
  for (const auto& name : inherited_to_unset(environment)) {
    const bool is_placeholder = asks && name == "RANK" && environment.get(name) == kRankPlaceholder;
    if (!is_placeholder && !(keeps_layout && name == kLayoutVariable)) unset_task_variable(spank, name);
  }
}

// srun's default for this step alone would apply to the steps inside of it, too.
void take_back_launch_default(spank_t spank, const Environment& environment) {
  const auto entry = environment.get(kLaunchDefaultVariable).value_or("");
  const auto equals = entry.find('=');
  if (equals == std::string_view::npos) return;
  const std::string name(entry.substr(0, equals));
  const auto ours = entry.substr(equals + 1);
  auto value = environment.get(name).value_or("");
  if (!value.ends_with(ours)) return;
  value.remove_suffix(ours.size());
  if (value.empty()) unset_task_variable(spank, name);
  if (value.ends_with(',')) (void)set_task_variable(spank, name, std::string(value.substr(0, value.size() - 1)));
}

}  // namespace

int StepOnNode::user_init(spank_t spank) {
  if (!is_slurmstepd() || is_prepared_) return kAccepted;  // listed twice in plugstack.conf
  const auto step = item(spank, S_JOB_STEPID);
  if (step && !is_normal_step(*step)) {
    is_broken_ = false;  // whatever broke is not needed here
    return kAccepted;
  }
  // Slurm goes on with a step whose option was refused on the node.
  is_broken_ = is_broken_ || has_lost_options();
  if (is_broken_) return kAccepted;
  is_prepared_ = true;
  return current().prepare_step(spank, step);
}

int StepOnNode::refuse_large_environment(spank_t spank) {
  const auto sentence = cat({"the environment of the step has more than ", std::to_string(kMostEntries),
                             " variables; unset some of them, or use --bootstrap=off"});
  const auto decision = task_variable(spank, std::string(kDecisionVariable).c_str());
  has_asked_ = asks_strongly(decision.value_or(""));
  if (has_asked_) {
    decision_.asked = Asked::kStrongly;
    error_ = Error{ErrorCode::kLimit, cat({"cannot set up the step: ", sentence})};
    return kAccepted;
  }
  for (const auto name : kMessages) unset_task_variable(spank, std::string(name));
  unset_task_variable(spank, std::string(kLayoutVariable));
  if (decision) warnings_.push_back(cat({"NOT SET UP: ", sentence}));
  return kAccepted;
}

int StepOnNode::leave_alone(spank_t spank, const Environment& environment, const std::optional<Decision>& decision) {
  unset_inherited(spank, environment, has_asked_);
  if (has_asked_) {
    decision_ = *decision;
    failure_sender_.prepare(environment);
    error_ = Error{};  // srun has printed why
    return kAccepted;
  }
  if (decision && decision->is_observed) log_info(step_, decision->reason);
  const auto choice = user_choice({});
  // The library acts by itself where it is preloaded, and does not know srun's options.
  if (choice.is_off && task_variable(spank, "LD_PRELOAD").value_or("").find("libbootstrap.so") != std::string::npos) {
    (void)set_task_variable(spank, "SLURM_BOOTSTRAP", "off");
  }
  if (!decision && asks_strongly(environment.get(kDecisionVariable).value_or(""), step_)) {
    has_asked_ = true;
    error_is_local_ = true;
    decision_.asked = Asked::kStrongly;
    failure_sender_.prepare(environment);
    error_ = Error{ErrorCode::kUnsupported,
                   "cannot set up the step: srun has another version of the plugin than the nodes; install one "
                   "version on all hosts, or use --bootstrap=off"};
  } else if (!decision && choice.asked != Asked::kUnasked && site_settings().when.value != When::kNever) {
    warnings_.emplace_back(
        "NOT SET UP: no decision from srun arrived on the nodes; srun has another version of the plugin, or --export "
        "drops the variables that begin with SLURM_BOOTSTRAP_ for this component");
  }
  return kAccepted;
}

int StepOnNode::prepare_step(spank_t spank, std::optional<std::uint32_t> step) {
  holds_first_node_ = item(spank, S_JOB_NODEID).value_or(0) == 0;

  const auto* const entries = job_environment(spank);
  if (has_too_many(entries)) return refuse_large_environment(spank);
  const auto environment = read_entries(entries, UnknownVariables::kSkip);
  const auto found = gather_step_id(spank, environment);
  if (!step || entries == nullptr || !found) {
    // Whether the step asked is not known here; each task finds out.
    log_info("Slurm did not provide the environment or the ids of a step; no variables are set");
    return fail_all_tasks(false);
  }
  const auto& id = *found;
  step_ = to_string(id);
  take_back_launch_default(spank, environment);
  const auto decision = read_decision(environment.get(kDecisionVariable).value_or(""), id);
  has_asked_ = decision && decision->asked == Asked::kStrongly;
  if (decision && !decision->is_observed && holds_first_node_ && site_settings().log.value) {
    log_info(step_, verdict(*decision, ""));
  }
  if (const auto& wrong = site_error(); wrong && !has_asked_) log_info(wrong->message);
  if (!decision || decision->set_up == SetUp::kNothing) return leave_alone(spank, environment, decision);
  decision_ = *decision;
  // srun sees kinds of GPUs only where the user named one. Nodes with MIG have it alike.
  const auto list = read_gpu_list(environment);
  if (decision_.asked == Asked::kUnasked && list && list->has_mig) {
    unset_inherited(spank, environment, false);
    log_info(step_, "NOT SET UP: Slurm allocated MIG instances; use --bootstrap=on to set it up");
    return kAccepted;
  }
  failure_sender_.prepare(environment);
  auto collected = collect_settings(environment);
  take_endpoint(collected.settings, decision_.endpoint);
  const bool is_refused = is_strong() && collected.error;
  if (is_refused) error_is_local_ = collected.is_sites;
  auto planned = is_refused ? Status(fail(*collected.error)) : plan_step(spank, environment, id, collected.settings);
  if (planned) {
    if (collected.error) plan_->warnings.push_back(collected.error->message);
  } else if (is_strong()) {
    error_ = planned.error();
  } else {
    // The user did not ask for a step that ends.
    warnings_.push_back(cat({planned.error().message, "; the tasks of ", own_host(), " start as without the plugin"}));
    plan_.reset();
    unset_inherited(spank, environment, false);
  }
  return kAccepted;
}

Status StepOnNode::plan_step(spank_t spank, const Environment& environment, const StepId& id,
                             const Settings& settings) {
  auto facts = gather_facts(spank, environment, id);
  if (!facts) {
    // Each node checks the places of its own tasks, and asks its own slurmstepd: the first one may have found nothing
    // wrong.
    const auto code = facts.error().code;
    error_is_local_ = code == ErrorCode::kMisplaced || code == ErrorCode::kUnavailable;
    return fail(facts.error());
  }
  facts->decision = decision_;
  const auto& ranks = facts->local_ranks;
  holds_first_node_ = std::find(ranks.begin(), ranks.end(), Rank{0}) != ranks.end();
  if (needs_gpu_places(*facts, settings)) {
    facts->gpus_of_node = read_gpus();
    facts->device_files = device_files_of(gpus_of(facts->gpus_of_node, facts->gpu_list->kind->vendor));
  }
  gather_network(*facts, settings);
  auto plan = make_step_plan(*facts, settings);
  if (!plan) {
    error_is_local_ = plan.error().code == ErrorCode::kMisplaced;
    return fail(plan.error());
  }
  if (plan->gpus && plan->gpus->tasks != ranks.size()) {
    error_is_local_ = true;
    return fail(ErrorCode::kUnsupported, cat({"two components of the step share ", own_host(),
                                              ": each has its own GPUs, but LOCAL_RANK counts the tasks of both; use "
                                              "--bootstrap-gpu=off, and select the GPU in the program"}));
  }
  // In a contained user_init a socket would be closed again before the tasks start.
  if (runs_in_slurmstepd()) {
    for (auto& refused : ports_.reserve(*plan, *facts, settings)) {
      error_is_local_ = error_is_local_ || !refused.is_users;
      if (!refused.is_users && is_strong()) return fail(ErrorCode::kUnavailable, std::move(refused.sentence));
      plan->warnings.push_back(std::move(refused.sentence));
    }
  } else {
    plan->port_to_reserve.reset();
  }
  if (plan->gpus) gpu_order_.prepare(*plan->gpus);
  facts_ = std::move(*facts);
  settings_ = settings;
  if (settings.preload.value) preload_ = check_preload(settings);
  plan_ = std::move(*plan);
  // Also what this step sets anew: a task in which our task_init does not run has nothing of an outer step.
  unset_inherited(spank, environment, is_strong() && plan_->find("RANK"), true);
  for (const auto& name : plan_->removals) unset_task_variable(spank, name);
  return {};
}

}  // namespace bootstrap
