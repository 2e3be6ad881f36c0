// task_init, in the forked child that becomes the task: it gets the variables of the plan, or ends with a reason. If a
// plugin before ours starts the program in its own task_init, the task gets none of them. The child of a process with
// threads may do little: to set variables, it opens, locks and looks up nothing.
// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "core/hardware/gpu_list.h"
#include "core/plan/explain.h"
#include "core/plan/frameworks.h"
#include "core/plan/node_gpus.h"
#include "core/settings/variables.h"
#include "core/step/planned_variables.h"
#include "core/step/step_id.h"
#include "core/util/text.h"
#include "probe/own_process.h"
#include "slurmstepd/node_reports.h"
#include "slurmstepd/step_on_node.h"
#include "slurmstepd/task_gpus.h"
#include "spank_api.h"

namespace bootstrap {
namespace {

constexpr int kStderrDrainTime = 300;  // milliseconds; 10 to 50 are usual

// Allocates nothing, because an allocation may be what failed.
void report_earlier_failure(spank_t spank) noexcept {
  const char* const host = std::getenv("SLURMD_NODENAME");
  const auto job = item(spank, S_JOB_ID);
  const auto step = item(spank, S_JOB_STEPID);
  char about[64] = "";
  if (job && step) (void)std::snprintf(about, sizeof about, "StepId=%u.%u: ", *job, *step);
  slurm_error(
      "bootstrap: %scannot set up the tasks of %s, because the plugin failed there earlier; the log of slurmd has the "
      "reason",
      about, host == nullptr ? "a node" : host);
}

// True for a variable that Slurm itself writes for a task: withdraw() must not remove Slurm's value.
bool from_slurm(std::string_view name) {
  return (name.starts_with("SLURM_") && !name.starts_with("SLURM_BOOTSTRAP_")) ||
         std::find(kSlurmGpuVariables.begin(), kSlurmGpuVariables.end(), name) != kSlurmGpuVariables.end();
}

// Ends the child before the program starts; does not return; its type is that of a hook.
int abort_task() noexcept {
  // srun ends the step on the first exit status that is not 0, and drops output of the tasks that it has not read by
  // then, which may be our error. So each such task waits, which gives srun the time to read it. The wait is in
  // this child alone, which would have become the program.
  (void)::poll(nullptr, 0, kStderrDrainTime);
  // To return -1 would do this only for a plugin that plugstack.conf calls `required`; for an `optional` one Slurm
  // drops the -1 and starts the program. Slurm itself ends the child this way when a required plugin fails.
  ::_exit(1);
}

}  // namespace

int StepOnNode::task_init(spank_t spank) {
  if (!is_broken_ && is_prepared_) {
    const int outcome = current().init_task(spank);
    if (const auto task = current().started_task_) NodeReports::current().pass_task(*task);
    return outcome;
  }
  if (!is_broken_) return kAccepted;
  // The failure may have happened before user_init knew whether the step asked, or after it had removed the decision.
  const auto decision = task_variable(spank, kDecisionVariable).value_or("");
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
  if (!task_plan_) return;
  for (const auto& variable : task_plan_->variables) {
    if (variable.action == Action::kKept || from_slurm(variable.name)) continue;
    unset_task_variable(spank, variable.name);
    if (variable.is_users) (void)set_task_variable(spank, variable.name, variable.previous);
  }
}

int StepOnNode::init_task(spank_t spank) {
  const auto task = item(spank, S_TASK_ID);
  if (const auto* const alone = std::get_if<LeftAlone>(&outcome_)) {
    if (started_task_ == task) return kAccepted;  // listed twice in plugstack.conf
    started_task_ = task;
    if (!is_reporter_ || task != 0U) return kAccepted;
    if (!alone->warning.empty()) log_warning(step_, alone->warning);
    return kAccepted;
  }
  if (!task) return give_up(spank, cat({"Slurm did not provide the number of a task on ", own_host()}));
  if (started_task_ == task) return kAccepted;
  started_task_ = task;
  if (const auto* const refused = std::get_if<Refused>(&outcome_)) {
    // A plan fails on all nodes alike: one of them reports it.
    if (!refused->why.empty() && is_reporter_ && *task == 0) log_error(step_, refused->why);
    return abort_task();
  }
  const auto started = set_up_task(spank, std::get<Planned>(outcome_), *task);
  if (started) return kAccepted;
  return give_up(spank, cat({"cannot set up a task on ", own_host(), ": ", started.error().message}));
}

int StepOnNode::give_up(spank_t spank, const std::string& why) const {
  if (has_asked_) {
    log_error(step_, why);
    return abort_task();
  }
  withdraw(spank);
  log_warning(step_, cat({why, "; the task starts as without the plugin"}));
  return kAccepted;
}

namespace {

// nullopt: no port is reserved, and the task gets the first ports that it may have.
std::optional<std::vector<std::uint16_t>> ports_of(const Planned& planned, std::size_t task) {
  if (!planned.ports) return std::nullopt;
  const auto& of_tasks = planned.ports->of_tasks;
  return task < of_tasks.size() ? of_tasks[task] : std::vector<std::uint16_t>();
}

// `gpus`: the node's, in the order that follows from the tasks' cores.
Result<TaskFacts> gather_task_facts(spank_t spank, const Planned& planned, const NodeGpus* gpus, std::uint32_t task,
                                    const Place& place) {
  TaskFacts own{.local_task = task, .gpus = gpus, .ports = ports_of(planned, task)};
  if (gpus != nullptr && gpus->is_untouched) {
    const auto list = task_variable(spank, gpus->kind().variable);
    // If another plugin has changed the list of this task, its own GPU is not known.
    if (list && *list != gpus->list.text()) {
      own.gpus = nullptr;
    } else {
      own.view = view_of(*gpus, place.local_rank);
    }
  } else if (gpus != nullptr) {
    auto view = look_at_gpus(spank, *gpus, planned.settings, place);
    if (!view) return fail(view.error());
    own.view = std::move(*view);
  }
  // Only OMP_NUM_THREADS depends on these.
  if (why_not_set(Framework::kOpenmp, planned.facts, planned.settings).empty()) {
    const auto number = [&](std::string_view name) {
      return parse_unsigned<std::uint32_t>(task_variable(spank, name).value_or("")).value_or(0);
    };
    own.cores = static_cast<std::uint32_t>(cores_of(0).count());
    own.cores_of_node = number("SLURM_CPUS_ON_NODE");
    own.cores_asked = number("SLURM_CPUS_PER_TASK");
  }
  for_each_variable(spank, [&](std::string_view name, std::string_view value) {
    const bool is_theirs = std::find(kLeftToPlugins.begin(), kLeftToPlugins.end(), name) != kLeftToPlugins.end();
    if (is_theirs) own.of_plugins.emplace_back(name, value);
  });
  return own;
}

// What explain shows: the plan of this task, and of the node's other tasks as far as they are known here.
std::vector<TaskPlan> plan_all_tasks(const Planned& planned, const TaskPlan& own_plan, const TaskFacts& own) {
  const auto& facts = planned.facts;
  constexpr std::size_t kMost = 16;  // more values have no room in a row
  std::vector<TaskPlan> tasks{own_plan};
  for (std::size_t other = 0; other < std::min(kMost, facts.ranks_here.size()); ++other) {
    if (other == own.local_task) continue;
    auto task = assumed_task(planned.plan, facts, other);
    if (task.gpus != nullptr && own.gpus != nullptr) {
      task.gpus = own.gpus;
      task.view = view_of(*own.gpus, facts.layout.place(facts.ranks_here[other]).local_rank);
    }
    task.ports = ports_of(planned, other);
    tasks.push_back(plan_task(planned.plan, facts, planned.settings, task));
  }
  return tasks;
}

// Sets all variables of the task, in place of what another plugin has set since user_init (pyxis writes those of a
// container's image). A value that the plan keeps stays as it is now. `rank`: must be what Slurm gave the task.
Status set_task_environment(spank_t spank, const TaskPlan& task, const std::vector<std::string>& removals, Rank rank) {
  // The environment of the task as it is now, for the names of the plan: all in one pass, since task_variable() makes a
  // pass for each. A value stays valid until its own variable is set. Names are compared only with those of the plan:
  // to look each of them up among the known variables took more than half of our own instructions in task_init.
  std::vector<std::optional<std::string_view>> now(task.variables.size());
  std::vector<const std::string*> to_remove;  // names that are not set again
  std::optional<std::string_view> named;
  for_each_variable(spank, [&](std::string_view name, std::string_view value) {
    if (name == "SLURM_PROCID") named = value;
    bool is_planned = false;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (task.variables[i].name != name) continue;
      now[i] = value;
      is_planned = true;
    }
    for (const auto& removal : removals) {
      if (!is_planned && removal == name) to_remove.push_back(&removal);
    }
  });
  const auto expected = std::to_string(rank);
  if (!named || *named != expected) {
    return fail(ErrorCode::kDisagreement,
                cat({"the plugin computed rank ", expected, " for a task, but its SLURM_PROCID is ",
                     named.value_or("not set"), "; start the step with --bootstrap=off, and report this as a bug"}));
  }
  // Variables that user_init could not remove: under contain_spank it may write into an environment of its own.
  for (const auto* const name : to_remove) unset_task_variable(spank, *name);
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto& variable = task.variables[i];
    if (variable.action == Action::kKept || now[i] == variable.value) continue;
    auto set = set_task_variable(spank, variable.name, variable.value);
    if (!set) return set;
  }
  return {};
}

Status preload(spank_t spank, const Result<std::string>& library) {
  if (!library) return fail(library.error());
  const auto current = task_variable(spank, "LD_PRELOAD").value_or("");
  const auto list = library->empty() ? current : append_preload(current, *library);
  return list == current ? Status() : set_task_variable(spank, "LD_PRELOAD", list);
}

}  // namespace

Status StepOnNode::set_up_task(spank_t spank, const Planned& planned, std::uint32_t task) {
  const auto& [facts, settings, plan, ports, node_warnings, library, gpu_order] = planned;
  if (task >= facts.ranks_here.size()) {
    return fail(ErrorCode::kDisagreement, cat({"Slurm starts local task ", std::to_string(task), " on a node with ",
                                               counted(facts.ranks_here.size(), "task")}));
  }
  const auto& place = facts.layout.place(facts.ranks_here[task]);
  std::optional<NodeGpus> reordered;
  if (plan.gpus && !plan.gpus->is_untouched) reordered = gpu_order.reordered(*plan.gpus);
  const auto* const gpus = reordered ? &*reordered : plan.gpus ? &*plan.gpus : nullptr;
  const auto own = gather_task_facts(spank, planned, gpus, task, place);
  if (!own) return fail(own.error());
  task_plan_ = plan_task(plan, facts, settings, *own);
  auto warnings = node_warnings;
  auto set = set_task_environment(spank, *task_plan_, plan.removals, place.rank);
  if (!set) return set;
  const auto preloaded = preload(spank, library);
  if (!preloaded && task == 0) log_warning(step_, preloaded.error().message);
  if (settings.cpu_near.value && own->gpus != nullptr && !own->gpus->is_untouched) {
    const auto bound = bind_near(*own->gpus, own->view);
    if (!bound) {
      warnings.push_back(cat({setting_text(settings, "cpu"), ": ", bound.error().message}));
    }
  }
  if (is_reporter_ && task == 0) {
    for (const auto& warning : task_plan_->warnings) log_warning(step_, warning);
    for (const auto& warning : warnings) log_warning(step_, warning);
  } else if (prints_node_warnings(place)) {
    for (const auto& warning : plan.node_warnings) log_warning(step_, warning);
  }
  const bool is_explained =
      settings.explain.value || facts.decision.is_verbose || process_settings(facts.environment).debug.value;
  if (place.rank == 0 && is_explained) explain_task(spank, planned, *own);
  return {};
}

void StepOnNode::explain_task(spank_t spank, const Planned& planned, const TaskFacts& own) const {
  const auto& facts = planned.facts;
  const auto& plan = planned.plan;
  const auto near = own.gpus == nullptr || own.gpus->is_untouched ? CpuSet() : cores_near(*own.gpus, own.view);
  const auto cores = cores_of(0);
  const auto slurm = text_item(spank, S_SLURM_VERSION);
  ExplainContext context{.verdict = verdict(facts.decision, hint_of(facts.decision)),
                         .reserves_port = planned.ports && planned.ports->reserves_master,
                         .shows_all = process_settings(facts.environment).debug.value,
                         .notes = {note_far_gpu(facts, 0, cores, near)},
                         .versions = cat({"plugin ", kVersion, slurm.empty() ? "" : ", Slurm ", slurm})};
  if (is_one_core(cores)) context.notes.push_back(note_one_core(facts, plan, 0));
  std::erase(context.notes, "");
  // Only the table shows other tasks.
  const auto tasks =
      planned.settings.explain.value ? plan_all_tasks(planned, *task_plan_, own) : std::vector{*task_plan_};
  print_to_stderr(explain_set_up(facts, planned.settings, plan, tasks, context));
}

}  // namespace bootstrap
