// Sets the variables of a rank in its own process before `main`, on a cluster without the plugin.
// SPDX-License-Identifier: Apache-2.0
#include "preload/preload.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/explain.h"
#include "core/plan/node_gpus.h"
#include "core/plan/plan.h"
#include "core/program/program.h"
#include "core/step/step_facts.h"
#include "core/step/step_id.h"
#include "core/util/text.h"
#include "probe/machine.h"
#include "probe/own_process.h"
#include "probe/port_reservation.h"
#include "probe/read_environment.h"

namespace bootstrap {

// A closed standard error must not end the program.
void print_line(std::string_view line) noexcept {
  const int before = errno;
  struct sigaction ignore {};
  struct sigaction of_program {};
  ignore.sa_handler = SIG_IGN;
  (void)::sigaction(SIGPIPE, &ignore, &of_program);
  char newline = '\n';
  const iovec parts[] = {{const_cast<char*>(line.data()), line.size()}, {&newline, 1}};
  while (::writev(STDERR_FILENO, parts, 2) == -1 && errno == EINTR) {
  }
  (void)::sigaction(SIGPIPE, &of_program, nullptr);
  errno = before;
}

namespace {

struct OwnEnvironment {
  std::vector<std::string> added;  // "NAME=VALUE"
  std::vector<char*> entries;
  const OwnEnvironment* before;
};

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

// Replaces the environment of this process. Neither the new one nor earlier ones are freed, since other code may point
// into them; a list keeps them reachable for leak checkers. setenv(3) is not used: programs define their own, and
// bash's uses shell variables, which do not exist before `main`.
void change_environment(std::vector<std::string> removals, std::vector<std::string> added = {}) {
  if (removals.empty() && added.empty()) return;
  for (const auto& entry : added) removals.emplace_back(name_of(entry));
  static OwnEnvironment* last = nullptr;
  last = new OwnEnvironment{std::move(added), {}, last};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool is_removed = std::find(removals.begin(), removals.end(), name_of(*entry)) != removals.end();
    if (!is_removed) last->entries.push_back(*entry);
  }
  for (auto& entry : last->added) last->entries.push_back(entry.data());
  last->entries.push_back(nullptr);
  environ = last->entries.data();
}

void export_plan(const StepPlan& plan, const TaskPlan& task) {
  std::vector<std::string> added;
  for (const auto& variable : task.variables) {
    if (variable.action != Action::kKept) added.push_back(cat({variable.name, "=", variable.value}));
  }
  change_environment(plan.removals, std::move(added));
}

// For errors after which the program still starts.
void warn(std::string_view step, std::string_view sentence) {
  print_line(cat({kWarningPrefix, about_step(step), sentence}));
}

// The process holds the ports until it ends: exec(2) closes them, and forked children share them. Not closed at exit,
// since threads of the program may still use them.
PortFacts reserve_ports(const StepFacts& facts, const Settings& settings, const StepPlan& plan) {
  static auto* const ports = new StepPorts;
  auto found = ports->reserve(plan.ports);
  for (const auto& refused : describe_refused_ports(plan.ports, found, facts, settings)) {
    warn(to_string(facts.id), refused.sentence);
  }
  return found;
}

// The plugin refuses this; here the program goes on, and its own error may be less clear.
std::string warn_of_missing_gpus(const StepFacts& facts, const Settings& settings, const StepPlan& plan) {
  const auto& place = facts.layout.place(facts.ranks_here.front());
  if (plan.gpus || place.local_rank != 0 || !is_oversubscribed(facts, settings)) return {};
  const auto gpus = facts.gpu_list->entries.size();
  const bool from_mpirun = facts.id.launcher == Launcher::kMpirun;
  return cat({describe_sharing(facts.layout.host_of(place.rank), place.local_size, "share", gpus),
              from_mpirun ? "; start at most as many ranks on a node as it has GPUs (-npernode "
                          : "; request one GPU for each task (--gres=gpu:",
              std::to_string(from_mpirun ? gpus : place.local_size),
              "), or set SLURM_BOOTSTRAP_GPU_SHARE=on to share them"});
}

// The plugin gets the cores from Slurm, this process from its own CPU mask.
TaskFacts own_task(const StepFacts& facts, const StepPlan& plan, const PortFacts& ports) {
  auto task = assumed_task(plan, facts, 0);
  task.cores = static_cast<std::uint32_t>(cores_of(0).count());
  task.cores_of_node = facts.environment.number("SLURM_CPUS_ON_NODE").value_or(0);
  task.cores_asked = facts.environment.number("SLURM_CPUS_PER_TASK").value_or(0);
  task.ports = ports.of_tasks.empty() ? std::vector<std::uint16_t>() : ports.of_tasks.front();
  return task;
}

// Called in rank 0 only.
void explain(const StepFacts& facts, const Settings& settings, const StepPlan& plan, const TaskPlan& task,
             bool reserves_port) {
  const bool is_debug = process_settings(facts.environment).debug.value;
  if (!settings.explain.value && !is_debug) return;
  auto text = explain_set_up(facts, settings, plan, {&task, 1},
                             {.verdict = verdict(facts.decision, {}),
                              .reserves_port = reserves_port,
                              .shows_all = is_debug,
                              .versions = cat({"libbootstrap ", kVersion})});
  text.pop_back();  // print_line() adds the newline
  print_line(text);
}

// The rules are those of a job that requested it: no launcher, and torchrun only as one task on each of several nodes.
SetUp what_to_set_up(const Environment& environment, Launcher launcher, std::span<const std::string> words) {
  const auto nodes = environment.number("SLURM_STEP_NUM_NODES").value_or(0);
  const auto kind = kind_by_words(words, environment, nodes);  // a process that runs is a program
  if (kind == ProgramKind::kLauncher) return SetUp::kNothing;
  if (kind != ProgramKind::kTorchrun) return SetUp::kAllSettings;
  const bool is_one_on_each = nodes > 1 && environment.number("SLURM_STEP_NUM_TASKS") == nodes;
  return launcher == Launcher::kSlurm && is_one_on_each ? SetUp::kTorchrun : SetUp::kNothing;
}

// This process asks no name server. An address that is a number needs none.
MeetingAddresses numbers_among(const Environment& environment, const Settings& settings) {
  MeetingAddresses meeting;
  const auto users = environment.get("MASTER_ADDR").value_or("");
  if (parse_ip_address(settings.address.value)) meeting.ours = settings.address.value;
  if (parse_ip_address(users)) meeting.users = users;
  return meeting;
}

Status set_up(const Environment& environment, SetUp what) {
  Settings settings;
  settings.preload = {true, Source::kEnvironment};  // it needs no GPUs to act: see why_not_asked()
  if (auto applied = apply_environment(settings, environment); !applied) return applied;
  if (settings.mode.value == Mode::kOff) {
    change_environment(inherited_to_unset(environment));
    return {};
  }
  auto facts = read_task_facts(environment, read_mpirun_context(environment));
  if (!facts) return fail(facts.error());
  facts->decision.set_up = what;
  facts->decision.reason = "the preloaded library does it, without the plugin";
  facts->is_preloaded = true;
  facts->meeting = numbers_among(environment, settings);
  gather_network(*facts, settings);
  const auto plan = plan_step(*facts, settings);
  if (!plan) return fail(plan.error());
  const auto ports = reserve_ports(*facts, settings, *plan);
  const auto task = plan_task(*plan, *facts, settings, own_task(*facts, *plan, ports));
  export_plan(*plan, task);
  const auto step = to_string(facts->id);
  const auto shared = warn_of_missing_gpus(*facts, settings, *plan);
  if (!shared.empty()) warn(step, shared);
  const auto& place = facts->layout.place(facts->ranks_here.front());
  if (place.rank != 0) {
    if (!prints_node_warnings(place)) return {};
    for (const auto& warning : plan->node_warnings) warn(step, warning);
    return {};
  }
  for (const auto& warning : task.warnings) warn(step, warning);
  // Under mpirun on several nodes. A program that is linked with MPI does not use MASTER_ADDR.
  if (!facts->knows_hosts && find_variable(task.variables, "MASTER_ADDR") == nullptr && !is_loaded("libmpi")) {
    warn(step,
         "MASTER_ADDR is not set, because mpirun does not tell a rank the host of rank 0; if the ranks are to meet "
         "there, use mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=PORT with the host of rank 0");
  }
  explain(*facts, settings, *plan, task, ports.reserves_master);
  return {};
}

bool set_up_or_warn(Launcher launcher, std::span<const std::string> words) {
  const auto what = what_to_set_up(process_environment(), launcher, words);
  if (what == SetUp::kNothing) return false;
  // Programs that know Open MPI would take the rank from mpirun's variables.
  if (launcher == Launcher::kSlurm) change_environment(stale_mpirun_names(process_environment()));
  const auto environment = process_environment();
  const auto done = set_up(environment, what);
  if (done) return true;
  const auto id = launcher == Launcher::kSlurm
                      ? read_step_id(environment)
                      : Result<StepId>(mpirun_id(environment.get("PMIX_NAMESPACE").value_or("")));
  // A plan fails on all ranks, or on all ranks of this node: the first rank of each node prints it.
  const auto* const local = launcher == Launcher::kSlurm ? "SLURM_LOCALID" : "OMPI_COMM_WORLD_LOCAL_RANK";
  if (environment.get(local).value_or("0") == "0") {
    const auto step =
        id ? to_string(*id)
           : cat({environment.get("SLURM_JOB_ID").value_or("?"), ".", environment.get("SLURM_STEP_ID").value_or("?")});
    warn(step, cat({done.error().message, "; the program starts without the variables of its rank"}));
  }
  // So that the children of this process do not fail in the same way.
  std::vector<std::string> added;
  if (id) added = {cat({kGivenUpVariable, "=", step_tag(*id)})};
  change_environment(inherited_to_unset(environment), std::move(added));
  return true;
}

}  // namespace

bool set_up_rank(Launcher launcher, int count, const char* const* words) noexcept {
  const int before = errno;
  bool is_set_up = true;
  try {
    is_set_up = set_up_or_warn(launcher, std::vector<std::string>(words, words + std::max(count, 0)));
  } catch (const std::exception&) {
    print_line(
        "bootstrap: warning: cannot set the variables of this rank: out of memory; the program starts without them");
  }
  errno = before;
  return is_set_up;
}

void remove_outer_rank() noexcept {
  const int before = errno;
  try {
    change_environment(inherited_to_unset(process_environment()));
  } catch (const std::exception&) {
    // Out of memory: the variables stay, as without this library.
  }
  errno = before;
}

}  // namespace bootstrap
