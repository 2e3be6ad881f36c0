// In srun: decides if its step is set up, and sends the nodes the facts that only srun has.
// SPDX-License-Identifier: Apache-2.0
#include "srun/srun_hooks.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/activation/activation_rules.h"
#include "core/plan/master_endpoint.h"
#include "core/plan/node_gpus.h"
#include "core/program/srun_arguments.h"
#include "core/settings/variables.h"
#include "core/step/failure.h"
#include "core/step/planned_variables.h"
#include "core/step/step_facts.h"
#include "core/step/step_id.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/secrets.h"
#include "spank_api.h"
#include "spank_options.h"
#include "srun/master_address.h"
#include "srun/report_receiver.h"
#include "srun/slurmctld_calls.h"
#include "srun/srun_facts.h"

namespace bootstrap {
namespace {

// For reading the program's head, all calls of slurmctld and all questions to the name server together. Each of them
// takes about a millisecond.
constexpr std::chrono::milliseconds kDecisionTime{5000};

void set_variable(std::string_view name, const std::string& value) {
  ::setenv(std::string(name).c_str(), value.c_str(), 1);
}

void unset_variable(std::string_view name) { ::unsetenv(std::string(name).c_str()); }

// A variable that begin_launch set for srun's own parser of options, and what it was before.
struct LaunchDefault {
  std::string name;
  std::string value;
  std::optional<std::string> before;
};

LaunchDefault* launch_default = nullptr;  // never freed: see spank_options.cc

// Sets a default unless the user has a value; adds flags to the user's. Informs the nodes: srun of 23.02, and of
// 23.11.0 to 23.11.3, copies its options into the step's environment.
void set_default(const GpuBindDefault& binding) {
  const std::string variable(binding.variable);
  const char* const given = std::getenv(variable.c_str());
  const bool is_added =
      binding.is_flag && given != nullptr && std::string_view(given).find(binding.value) == std::string_view::npos;
  if (given != nullptr && !is_added) return;
  const auto before = given == nullptr ? std::nullopt : std::optional<std::string>(given);
  const auto now = before ? cat({*before, ",", binding.value}) : std::string(binding.value);
  if (::setenv(variable.c_str(), now.c_str(), 1) != 0) return;
  launch_default = new LaunchDefault{variable, now, before};
  set_variable(kLaunchDefaultVariable, cat({variable, "=", binding.value}));
}

// Also called once more when the step exists: a ":" among the program's arguments looked like a component, or srun has
// set its variables from its options meanwhile.
void unset_launch_default() {
  const char* const now = launch_default == nullptr ? nullptr : std::getenv(launch_default->name.c_str());
  if (now == nullptr || now != launch_default->value) return;
  if (launch_default->before) set_variable(launch_default->name, *launch_default->before);
  if (!launch_default->before) unset_variable(launch_default->name);
}

// Components of the step, separated by ":", whose options srun has not parsed.
std::ptrdiff_t components_to_parse = 0;

// Slurm's own binding hides the other GPUs from each task. Switches it off if the user did not ask for it. If the user
// did, passes that on to the nodes, which only see the result: also in a step that takes the GPUs of its job, which
// neither srun's options nor its variables show.
void set_gpu_defaults(spank_t spank, const Environment& environment, const std::vector<std::string>& arguments,
                      bool asks_for_itself, std::string_view launchers) {
  const auto has = [&](std::string_view word) { return std::count(arguments.begin(), arguments.end(), word) != 0; };
  const auto asked = asked_gpu_binding(environment, arguments);
  if (asked.kind != GpuBind::kNone) set_variable(kUsersBindVariable, write_record(asked));
  // A step that is then left alone keeps Slurm's binding.
  if (!asks_for_itself && (site_error() || may_be_no_world(environment, arguments, launchers))) return;
  if (environment.has("HIP_VISIBLE_DEVICES")) return;  // it may be meant for what Slurm leaves each task
  // A component asks only for itself, and its own option overrides the default.
  if ((asked.kind == GpuBind::kNone || has(":")) && implies_gpu_binding(environment, arguments)) {
    set_default(gpu_bind_default_of(spank));
  }
}

}  // namespace

void unset_outer_variables() {
  for (const auto name : kMessages) unset_variable(name);
  const auto environment = read_entries(environ, UnknownVariables::kSkip);
  const auto value = environment.get(kTasksPerNodeVariable);
  if (value && ExportRecord(environment).is_ours(kTasksPerNodeVariable, *value)) unset_variable(kTasksPerNodeVariable);
}

// srun has not parsed these words, so a step may wrongly count as one that asks, but never the reverse. The default has
// no effect on a step without GPUs per task.
void begin_launch(spank_t spank) {
  expect_options_of_job();
  if (site_settings().when.value == When::kNever) return;
  const auto environment = read_entries(environ, UnknownVariables::kSkip);
  const auto arguments = own_command_line();
  components_to_parse = 1 + std::count(arguments.begin(), arguments.end(), ":");
  const bool asks = asks_for_itself(arguments);
  if (!job_asks() && !asks) return;
  auto settings = site_settings();
  (void)apply_environment(settings, environment);
  settings = with_arguments(arguments, settings);
  if (settings.mode.value == Mode::kOff) return;
  const bool is_salloc_shell = std::count(arguments.begin(), arguments.end(), "--interactive") != 0;
  if (settings.gpu.value != GpuMode::kOff && !is_salloc_shell)
    set_gpu_defaults(spank, environment, arguments, asks, settings.launchers.value);
  // srun runs local_user_init once for all components, but copies the environment of the others before that. srun looks
  // up a variable that --export names after it, so srun's decision reaches the others, too.
  if (expects_components(arguments) && !environment.has("SLURM_EXPORT_ENV") && !environment.has(kExportVariable)) {
    set_variable(kExportVariable, std::string(asks ? kAskedExportValue : kExportValue));
  }
}

namespace {

std::optional<StepNumbers> read_numbers(spank_t spank, const Environment& environment) {
  const auto job = item(spank, S_JOB_ID);
  const auto step = item(spank, S_JOB_STEPID);
  const auto count = item(spank, S_JOB_TOTAL_TASK_COUNT);
  if (!job || !step || !count || !is_normal_step(*step) || !is_known_job(*job)) return std::nullopt;
  // The item counts one component, the variable all of them. With --preserve-env the variable is the job's.
  const auto all = has_several_components(own_command_line()) ? environment.number("SLURM_NTASKS").value_or(0) : 0;
  const auto tasks = std::max(all, *count);
  return StepNumbers{.job = *job,
                     .leader = environment.number("SLURM_JOB_ID").value_or(*job),
                     .step = *step,
                     .tasks_in_component = *count,
                     .tasks = tasks};
}

struct Answers {
  std::optional<SlurmctldAnswers> record;
  std::vector<ComponentText> components;
  FoundAddresses addresses;
};

// `needs_record`: also asks for the record of the step's request.
Answers ask(const StepNumbers& numbers, const SrunFacts& step, bool needs_record) {
  Answers answers;
  if (needs_record) {
    answers.record = ask_step_record(numbers, step, answers.components);
    if (!answers.record) return answers;
    if (needs_job_nodes(answers.record->request, step.nodes)) {
      answers.record->request.job_nodes = ask_job_nodes(numbers.job);
    }
  }
  if (answers.components.empty()) answers.components = ask_step_layout(numbers);
  return answers;
}

// If slurmctld limits requests, the time of these calls does not count for `deadline`.
std::optional<Answers> ask_in_time(const StepNumbers& numbers, const SrunFacts& step, bool needs_record,
                                   Deadline& deadline) {
  const auto begin = std::chrono::steady_clock::now();
  const auto limited = time_where_limited();
  auto got = call_in_time([numbers, step, needs_record] { return ask(numbers, step, needs_record); },
                          std::max(deadline, begin + limited));
  if (limited.count() != 0) deadline += std::chrono::steady_clock::now() - begin;
  return got;
}

// On a node that does not run the plugin, or where another plugin starts the program first, the task of a step that
// asks on its own line finds a RANK that is no number. It is in the record as ours: other nodes replace or remove it
// silently, those of version 1.0.0 too.
void put_placeholder_into_rank(const Environment& environment) {
  const ExportRecord record(environment);
  const auto rank = environment.get("RANK");
  if (rank && !record.is_ours("RANK", *rank)) return;  // the user's
  set_variable("RANK", std::string(kRankPlaceholder));
  set_variable(kExportsVariable, record.with("RANK", kRankPlaceholder));
  // Never this step's own tag: the library would take the task for one that is set up.
  if (record.step_tag().empty()) set_variable(kStepTagVariable, "srun");
}

// Puts the decision, and the layout with the addresses that srun looked up, into srun's environment for the nodes.
void hand_over(const StepNumbers& numbers, Decision decision, const PortRange& range, const Answers& answers) {
  decision.salt = salt_of_step(numbers.id(), range, random_bits().value_or(0));
  decision.unusable_master = answers.addresses.unusable_master;
  set_variable(kDecisionVariable, write_decision(numbers.id(), decision));
  // The nodes report a missing layout if it matters.
  if (decision.set_up == SetUp::kNothing || answers.components.empty()) return;
  const auto text = write_layout(numbers.leader, numbers.step, answers.components, answers.addresses.meeting);
  if (text) set_variable(kLayoutVariable, *text);
  if (!text) log_error(to_string(numbers.id()), text.error().message);
}

// The decision without slurmctld; nullopt: its answers decide.
std::optional<Activation> decide_early(const StepNumbers& numbers, const UserChoice& choice, const Settings& settings,
                                       const SrunFacts& step) {
  const bool is_switched_off = choice.is_off || settings.when.value == When::kNever;
  // With a wrong argument it is not known which steps the site wants set up.
  if (const auto& wrong = site_error(); wrong && !is_switched_off) {
    return refuse_or_leave_alone(choice, wrong->message, "");
  }
  auto activation = decide_without_calls(choice, settings, step);
  if (activation || !numbers.is_pending()) return activation;
  activation = decide_without_answers(choice, "srun --async ends before the step has nodes and tasks");
  if (settings.when.value == When::kObserve) activation->needs_warning = false;
  return activation;
}

Activation decide_by_answers(const std::optional<Answers>& answers, const UserChoice& choice, const Settings& settings,
                             const SrunFacts& step) {
  if (!answers) {
    const bool is_limited = time_where_limited().count() != 0;
    return decide_without_answers(choice, is_limited
                                              ? "slurmctld did not answer in time, and limits the requests of each "
                                                "user (SlurmctldParameters=rl_enable)"
                                              : "slurmctld did not answer within 5 s");
  }
  if (!answers->record || answers->components.empty()) {
    return decide_without_answers(choice, "slurmctld did not provide the GPUs and the nodes of the step");
  }
  auto record = *answers->record;
  record.tasks_per_node = answers->components.front().tasks_per_node;
  return decide_activation(choice, settings, step, record);
}

// Also a step that is set up without slurmctld's answers needs the layout of its ranks and their meeting place.
Activation decide(const StepNumbers& numbers, const Environment& environment, const UserChoice& choice,
                  const Settings& settings, const SrunFacts& step, Deadline deadline, Answers& answers) {
  auto early = decide_early(numbers, choice, settings, step);
  if (early && (early->decision.set_up == SetUp::kNothing || numbers.is_pending())) return std::move(*early);
  const bool is_late = std::chrono::steady_clock::now() >= deadline;
  if (!early && is_late) return decide_without_answers(choice, step.program.reason);
  auto got = ask_in_time(numbers, step, !early, deadline);
  auto activation = early ? std::move(*early) : decide_by_answers(got, choice, settings, step);
  if (got) answers = std::move(*got);
  // After the decision: a step that is left alone does not wait for a name server.
  if (activation.decision.set_up == SetUp::kNothing) return activation;
  answers.addresses = find_addresses(environment, settings, choice.asked, answers.components, deadline);
  const auto& host = answers.addresses.host_without_address;
  if (host.empty()) return activation;
  return decide_without_address(choice, cat({"where srun runs, the name ", host,
                                             " does not resolve, and Slurm has no other address of that node"}));
}

void receive_reports(const StepNumbers& numbers, const Decision& decision, const Settings& settings,
                     const std::vector<ComponentText>& components) {
  const bool is_refused = decision.set_up == SetUp::kNothing;
  ReportPolicy policy{.id = numbers.id(),
                      .jobs = {numbers.job},
                      .tasks = numbers.tasks,
                      .is_asked = decision.asked == Asked::kStrongly,
                      .is_refused = is_refused,
                      .grace = settings.grace.value,
                      .components = is_refused ? std::vector<ComponentText>() : components};
  for (const auto& component : components) {
    if (component.job != numbers.job) policy.jobs.push_back(component.job);
  }
  start_report_receiver(policy);
}

// The decision in one line. A step that is set up and explained gets this line with its table, in the task of rank 0.
void report_decision(const StepId& id, const Environment& environment, const Activation& activation,
                     const Settings& settings) {
  const auto step = to_string(id);
  const auto line = activation.line();
  const bool is_set_up = activation.decision.set_up != SetUp::kNothing;
  const bool is_debug = process_settings(environment).debug.value;
  if (!is_set_up && activation.decision.asked == Asked::kStrongly) {
    log_error(step, line);  // the nodes refuse the step, and are silent
  } else if (settings.explain.value ? !is_set_up : is_debug) {
    print_to_stderr(cat({step_prefix(id), line, "\n"}));
  } else if (activation.needs_warning) {
    log_warning(step, line);
  } else {
    log_verbose(step, line);
  }
  // If the step is set up, the node of rank 0 prints the same note.
  if (const auto unknown = describe_unknown(environment); !is_set_up && !unknown.empty()) {
    if (settings.explain.value || is_debug) print_to_stderr(cat({step_prefix(id), unknown, "\n"}));
    log_verbose(step, unknown);
  }
}

// What else the user reads about the step.
void report_step(const StepNumbers& numbers, const Decision& decision, const Settings& settings, const SrunFacts& facts,
                 const Answers& answers) {
  const auto step = to_string(numbers.id());
  const bool is_announced = decision.set_up != SetUp::kNothing && decision.asked == Asked::kUnasked &&
                            numbers.tasks > 1 && settings.announce.value && !settings.explain.value;
  if (is_announced && !answers.components.empty()) {
    log_info(step, announcement(decision, numbers.tasks, answers.components.front().nodes,
                                host_of_first_rank(answers.components)));
  }
  for (const auto& warning : program_warnings(decision, facts)) log_warning(step, warning);
  const auto& unusable = answers.addresses.unusable_option;
  if (unusable.empty()) return;
  log_warning(step,
              cat({setting_text(settings, "master_addr"), ": ", unusable,
                   " does not resolve where srun runs, or only to a loopback address; ranks for which it is the same "
                   "may find no rank 0: use another name"}));
}

}  // namespace

void end_of_options(spank_t spank) {
  // srun parses one component after the other, each with the environment of that moment.
  if (--components_to_parse <= 0) unset_launch_default();
  expect_options_of_job();
  if (components_to_parse <= 0 && is_async(own_command_line())) (void)decide_step(spank);
}

int decide_step(spank_t spank) {
  if (!is_srun()) return kAccepted;
  unset_launch_default();
  const auto environment = read_entries(environ, UnknownVariables::kSkip);
  auto numbers = read_numbers(spank, environment);
  if (!numbers && is_async(own_command_line())) {  // --async works only inside a job
    const auto job = requested_step(environment, own_command_line()).job;
    numbers = {.job = job, .leader = job, .step = kPendingStep};
  }
  if (!numbers) return kAccepted;
  const auto bound = binding_to_keep(environment, own_command_line());
  if (!bound.empty()) set_variable(kCpuBindVariable, cat({to_string(numbers->id()), " ", bound}));
  const auto choice = user_choice(environment);
  const auto settings = collect_settings(environment).settings;
  Answers answers;
  const auto deadline = std::chrono::steady_clock::now() + kDecisionTime;
  const auto facts = gather_srun_facts(spank, environment, choice, settings, deadline);
  auto activation = decide(*numbers, environment, choice, settings, facts, deadline, answers);
  auto& decision = activation.decision;
  decision.is_verbose = facts.is_verbose;
  decision.endpoint = write_endpoint(settings);
  report_decision(numbers->id(), environment, activation, settings);
  report_step(*numbers, decision, settings, facts, answers);
  // The nodes see our option, and need to know that srun ignored it and did not lose it.
  const bool is_passed_on = decision.is_observed || has_options() || settings.log.value;
  const bool is_set_up = decision.set_up != SetUp::kNothing;
  const bool has_asked = decision.asked == Asked::kStrongly;
  if (is_set_up || is_passed_on) hand_over(*numbers, decision, settings.port_range.value, answers);
  if (has_asked) put_placeholder_into_rank(environment);
  if ((is_set_up || has_asked) && !numbers->is_pending() && !reports_for_itself(job_command(spank))) {
    receive_reports(*numbers, decision, settings, answers.components);
  }
  if (!is_set_up) {
    unset_variable(kUsersBindVariable);
    if (is_our_export(environment.get(kExportVariable).value_or(""))) unset_variable(kExportVariable);
  }
  return kAccepted;
}

}  // namespace bootstrap
