// user_init, once for each node: what srun decided becomes the plan of the step on this node.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/exchange/libpmi_release.h"
#include "core/plan/explain.h"
#include "core/program/program.h"
#include "core/settings/variables.h"
#include "core/util/text.h"
#include "probe/files.h"
#include "probe/machine.h"
#include "probe/own_process.h"
#include "probe/read_gpus.h"
#include "slurmstepd/node_reports.h"
#include "slurmstepd/step_on_node.h"
#include "spank_api.h"
#include "spank_options.h"

namespace bootstrap {
namespace {

// Slurm goes through all of the environment for each variable that is set or removed.
constexpr std::size_t kMostEntries = 16384;

// The id is the same in all components of a heterogeneous step: its job is that of the first one, SLURM_JOB_ID.
std::optional<StepId> gather_step_id(spank_t spank, const Environment& environment) {
  const auto job = item(spank, S_JOB_ID);
  const auto step = item(spank, S_JOB_STEPID);
  if (!job || !step) return std::nullopt;
  const auto named = environment.number("SLURM_JOB_ID");
  // The item has the count in a batch step; in srun's steps it is 0, and the variable comes from the batch script.
  const auto item_restart = item(spank, S_SLURM_RESTART_COUNT).value_or(0);
  const auto restart = environment.number("SLURM_RESTART_COUNT").value_or(0);
  return StepId{.job = std::min(*job, named.value_or(*job)), .step = *step, .restart = std::max(item_restart, restart)};
}

// SPANK's items are preferred to the environment, which users can change. If both are there, they must agree.
Result<StepFacts> gather_facts(spank_t spank, const Environment& environment, const StepId& id) {
  const auto cannot = [](std::string_view what) {
    return fail(ErrorCode::kUnavailable, cat({"Slurm did not provide ", what, " on ", own_host()}));
  };
  const auto count = item(spank, S_JOB_LOCAL_TASK_COUNT);
  if (!count) return cannot("the number of tasks");
  LocalTasks local;
  local.component_job = item(spank, S_JOB_ID);
  local.component_size = item(spank, S_JOB_TOTAL_TASK_COUNT);
  local.host = own_host();
  for (std::uint32_t task = 0; task < *count; ++task) {
    const auto rank = item(spank, S_JOB_LOCAL_TO_GLOBAL_ID, task);
    if (!rank) return cannot("the ranks of the tasks");
    local.ranks.push_back(*rank);
  }
  auto facts = read_facts(environment, id, local);
  if (!facts) return facts;
  facts->slurm = write_slurm(slurm_of_step(spank));
  facts->gpu_bind_option = gpu_bind_default_of(spank).option;
  facts->cores_of_node = item<std::uint16_t>(spank, S_JOB_NCPUS).value_or(0);
  return facts;
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

// In user_init the files are the node's, whatever container a task starts in, and whatever the order of the plugins.
Result<std::string> find_preload(const Settings& settings) {
  if (!settings.preload.value) return "";
  const auto library = settings.preload_library.value.empty() ? BOOTSTRAP_LIBRARY : settings.preload_library.value;
  const auto cannot = [&](std::string_view why) {
    constexpr std::string_view kRemedy =
        "; install libbootstrap.so there, or set preload_library= in plugstack.conf; the tasks start without it";
    return fail(ErrorCode::kUnavailable, cat({setting_name(settings, "preload"), ": cannot preload ", library, " on ",
                                              own_host(), ": ", why, kRemedy}));
  };
  // A file that is not there would make ld.so complain in every process of the task.
  if (library.find_first_of(" :") != std::string::npos)
    return cannot("LD_PRELOAD does not accept a path with a space or a colon");
  if (!may_access(library, R_OK)) return cannot(std::strerror(errno));
  // A user who can change it would run code in the tasks of all users.
  if (const auto reason = distrust_of_writers(library); !reason.empty()) return cannot(reason);
  // If LD_PRELOAD names a file that musl finds and cannot use, musl ends the program with 127; it skips a file that it
  // does not find. glibc's loader replaces $LIB by a folder (ld.so(8)), and musl's finds no folder of that name. More
  // ".." than there are folders end at the root.
  const bool has_folder = library.front() == '/' && may_access("/" BOOTSTRAP_GLIBC_LIB, X_OK);
  return cat({has_folder ? "/$LIB/../../../../../../../.." : "", library});
}

}  // namespace

int StepOnNode::user_init(spank_t spank) {
  if (!is_slurmstepd() || is_prepared_) return kAccepted;  // listed twice in plugstack.conf
  const auto step = item(spank, S_JOB_STEPID);
  if (step && !is_normal_step(*step)) {
    is_broken_ = false;  // whatever broke is not needed here
    return kAccepted;
  }
  if (is_broken_) return kAccepted;  // Slurm goes on, also with a step whose option was refused on the node
  is_prepared_ = true;
  NodeReports::current().say_hello(spank);
  auto& self = current();
  self.outcome_ = self.look_at_step(spank);
  const auto* const refused = std::get_if<Refused>(&self.outcome_);
  if (refused != nullptr && !refused->why.empty()) NodeReports::current().refuse(refused->why);
  return kAccepted;
}

StepOnNode::Outcome StepOnNode::refuse_large_environment(spank_t spank) {
  const auto sentence = cat({"the environment of the step has more than ", std::to_string(kMostEntries),
                             " variables; unset some of them, or use --bootstrap=off"});
  const auto text = task_variable(spank, kDecisionVariable).value_or("");
  const auto id = gather_step_id(spank, {});
  const auto decision = id ? read_decision(text, *id) : std::nullopt;
  step_ = id ? to_string(*id) : "";
  has_asked_ = asks_strongly(text);
  if (has_asked_) return Refused{cat({"cannot set up the step: ", sentence})};
  for (const auto name : kMessages) unset_task_variable(spank, std::string(name));
  unset_task_variable(spank, std::string(kLayoutVariable));
  if (!decision || decision->set_up == SetUp::kNothing) return LeftAlone{};
  return LeftAlone{cat({"NOT SET UP: ", sentence})};
}

StepOnNode::Outcome StepOnNode::leave_alone(spank_t spank, const Environment& environment,
                                            const std::optional<Decision>& decision) {
  if (has_asked_) return Refused{};
  const auto choice = user_choice({});
  // The library acts by itself where it is preloaded, and does not know srun's options.
  if (choice.is_off && task_variable(spank, "LD_PRELOAD").value_or("").find("libbootstrap.so") != std::string::npos) {
    (void)set_task_variable(spank, "SLURM_BOOTSTRAP", "off");
  }
  if (decision) return LeftAlone{};
  if (asks_strongly(environment.get(kDecisionVariable).value_or(""), step_)) {
    has_asked_ = true;
    is_reporter_ = true;  // the first node may have srun's version
    return Refused{
        "cannot set up the step: srun has another version of the plugin than the nodes; install one version on all "
        "hosts, or use --bootstrap=off"};
  }
  if (choice.asked == Asked::kUnasked || site_settings().when.value == When::kNever) return LeftAlone{};
  return LeftAlone{
      "NOT SET UP: no decision from srun arrived on the nodes; srun has another version of the plugin, or --export "
      "drops the variables that begin with SLURM_BOOTSTRAP_ for this component"};
}

// One line for a step, and one more if a node refuses it for a reason of its own.
void StepOnNode::log_decision(spank_t spank, const Environment& environment, const Decision& decision,
                              const Outcome& outcome) const {
  if (!is_reporter_ || !(site_settings().log.value || decision.is_observed)) return;
  const auto* const refused = std::get_if<Refused>(&outcome);
  const auto* const alone = std::get_if<LeftAlone>(&outcome);
  const auto* const what = refused != nullptr ? "REFUSED" : alone != nullptr ? "NOT SET UP" : "SET UP";
  const auto own = refused != nullptr ? refused->why : alone != nullptr ? alone->warning : "";
  const auto& why = own.empty() ? decision.reason : own;
  const auto name_in = [&](const char* variable) {
    const auto name = environment.get(variable).value_or("");
    return is_host_name(name) ? name : "?";
  };
  const auto count_of = [spank](spank_item_t which) {
    const auto count = item(spank, which);
    return count ? std::to_string(*count) : "?";
  };
  // As Slurm names a user: "alice(1000)".
  log_info(step_, cat({"decision=\"", what, "\" user=", name_in("SLURM_JOB_USER"), "(",
                       std::to_string(item<uid_t>(spank, S_JOB_UID).value_or(0)),
                       ") partition=", name_in("SLURM_JOB_PARTITION"), " tasks=", count_of(S_JOB_TOTAL_TASK_COUNT),
                       " nodes=", count_of(S_JOB_NNODES), " reason: ", printable(why)}));
}

StepOnNode::Outcome StepOnNode::look_at_step(spank_t spank) {
  is_reporter_ = item(spank, S_JOB_NODEID).value_or(0) == 0;

  const auto* const entries = job_environment(spank);
  std::size_t count = 0;
  while (entries != nullptr && entries[count] != nullptr && count <= kMostEntries) ++count;
  if (count > kMostEntries) return refuse_large_environment(spank);
  const auto environment = read_entries(entries, UnknownVariables::kSkip);
  const auto id = gather_step_id(spank, environment);
  if (entries == nullptr || !id) {
    // Whether the step asked is not known here; each task finds out.
    log_info("Slurm did not provide the environment or the ids of a step; no variables are set");
    (void)fail_all_tasks(false);
    return LeftAlone{};
  }
  step_ = to_string(*id);
  take_back_launch_default(spank, environment);
  const auto decision = read_decision(environment.get(kDecisionVariable).value_or(""), *id);
  has_asked_ = decision && decision->asked == Asked::kStrongly;
  if (const auto& wrong = site_error(); wrong && !has_asked_) log_info(wrong->message);
  const bool is_set_up = decision && decision->set_up != SetUp::kNothing;
  auto outcome = is_set_up ? set_up(spank, environment, *id, *decision) : leave_alone(spank, environment, decision);
  // For all tasks of the node, and for TaskEpilog and --task-epilog, before which no hook runs. Also names that this
  // step sets again, so that a task in which our task_init does not run has no value of an outer step.
  const auto* const planned = std::get_if<Planned>(&outcome);
  const bool is_for_agents = planned != nullptr && decision->set_up == SetUp::kTorchrun;
  for (const auto& name : planned != nullptr ? planned->plan.removals : inherited_to_unset(environment)) {
    // Only task_init replaces srun's placeholder: it stays if another plugin starts the program first.
    if (has_asked_ && !is_for_agents && name == "RANK" && environment.get(name) == kRankPlaceholder) continue;
    unset_task_variable(spank, name);
  }
  if (decision) log_decision(spank, environment, *decision, outcome);
  return outcome;
}

StepOnNode::Outcome StepOnNode::set_up(spank_t spank, const Environment& environment, const StepId& id,
                                       const Decision& decision) {
  // srun sees kinds of GPUs only if the user named one, so it has announced a world. MIG is the same on all nodes.
  const auto list = read_gpu_list(environment);
  if (decision.asked == Asked::kUnasked && list && list->has_mig) {
    return LeftAlone{"NOT SET UP: Slurm allocated MIG instances; use --bootstrap=on to set it up"};
  }
  auto collected = collect_settings(environment);
  take_endpoint(collected.settings, decision.endpoint);
  if (has_asked_ && collected.error) {
    is_reporter_ = is_reporter_ || site_error();
    return Refused{collected.error->message};
  }
  auto planned = plan_node(spank, environment, id, decision, collected.settings);
  if (planned) {
    if (collected.error) planned->warnings.push_back(collected.error->message);
    return std::move(*planned);
  }
  // Each node checks the places of its own tasks, and asks its own slurmstepd: the first node may have found nothing
  // wrong.
  const auto code = planned.error().code;
  is_reporter_ = is_reporter_ || code == ErrorCode::kMisplaced || code == ErrorCode::kUnavailable;
  if (has_asked_) return Refused{planned.error().message};
  // Only a step that asks on its own line is ended.
  return LeftAlone{cat({planned.error().message, "; the tasks of ", own_host(), " start as without the plugin"})};
}

Result<Planned> StepOnNode::plan_node(spank_t spank, const Environment& environment, const StepId& id,
                                      const Decision& decision, const Settings& settings) {
  auto facts = gather_facts(spank, environment, id);
  if (!facts) return fail(facts.error());
  facts->decision = decision;
  const auto& ranks = facts->ranks_here;
  is_reporter_ = std::find(ranks.begin(), ranks.end(), Rank{0}) != ranks.end();
  if (needs_gpu_places(*facts, settings)) {
    facts->gpus_of_node = read_gpus();
    facts->device_files = device_files_of(gpus_of(facts->gpus_of_node, facts->gpu_list->kind->vendor));
  }
  gather_network(*facts, settings);
  facts->is_users_master_elsewhere = is_reporter_ && !is_own_address(facts->meeting.users);
  auto plan = plan_step(*facts, settings);
  if (!plan) return fail(plan.error());
  if (plan->gpus && plan->gpus->tasks != ranks.size()) {
    return fail(ErrorCode::kMisplaced, cat({"two components of the step share ", own_host(),
                                            ": each has its own GPUs, but LOCAL_RANK counts the tasks of both; use "
                                            "--bootstrap-gpu=off, and select the GPU in the program"}));
  }
  std::optional<PortFacts> ports;
  std::vector<std::string> warnings;
  if (auto unused = warn_of_unused_gpus(*facts, *plan); !unused.empty()) {
    // Other programs may be made for several GPUs.
    const auto kind = kind_by_words(job_command(spank), environment, item(spank, S_JOB_NNODES).value_or(1));
    if (kind == ProgramKind::kTraining) warnings.push_back(std::move(unused));
  }
  // In a contained user_init a socket would be closed again before the tasks start.
  if (runs_in_slurmstepd()) {
    ports = ports_.reserve(plan->ports);
    for (auto& refused : describe_refused_ports(plan->ports, *ports, *facts, settings)) {
      if (!refused.is_users && has_asked_) return fail(ErrorCode::kUnavailable, std::move(refused.sentence));
      is_reporter_ = is_reporter_ || !refused.is_users;
      warnings.push_back(std::move(refused.sentence));
    }
  }
  Planned planned{.facts = std::move(*facts),
                  .settings = settings,
                  .plan = std::move(*plan),
                  .ports = std::move(ports),
                  .warnings = std::move(warnings),
                  .preload = find_preload(settings)};
  if (planned.plan.gpus) planned.gpu_order.prepare(*planned.plan.gpus);
  return planned;
}

}  // namespace bootstrap
