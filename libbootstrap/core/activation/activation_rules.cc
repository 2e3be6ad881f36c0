// Which steps are set up, and why: the request for GPUs, and the rules in their order.
// SPDX-License-Identifier: Apache-2.0
#include "core/activation/activation_rules.h"

#include <algorithm>

#include "core/settings/variables.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {

namespace {

constexpr std::string_view kAskForIt = "use --bootstrap=on to set it up";
constexpr std::string_view kAskOrNot = "use --bootstrap=on to set it up, or --bootstrap=off";
constexpr std::string_view kAskForJob =
    "use --bootstrap=on to set it up, or #SBATCH --bootstrap=on for all steps of a job";
constexpr std::string_view kMoreTasks =
    "use --ntasks-per-node=N to start a task for each of N GPUs, or --bootstrap=on to set up one task";

Activation not_set_up(std::string reason, std::string_view hint = {}, bool needs_warning = false) {
  Activation activation;
  activation.decision.reason = std::move(reason);
  activation.hint = hint;
  activation.needs_warning = needs_warning;
  return activation;
}

Activation set_up(SetUp what, Asked asked, std::string reason) {
  Activation activation;
  activation.decision.set_up = what;
  activation.decision.asked = asked;
  activation.decision.reason = std::move(reason);
  activation.hint = hint_of(activation.decision);
  return activation;
}

// The job asked for all its steps, but this one is better left alone. srun warns, since the user may want it set up.
Activation leave_alone(const UserChoice& choice, std::string_view reason,
                       std::string_view hint = "use --bootstrap=on on the line of srun to set it up anyway") {
  return not_set_up(cat({reason, ", although ", choice.origin, " asks for it"}), hint, true);
}

bool is_torchrun_shape(const SrunFacts& step) { return step.nodes > 1 && step.tasks == step.nodes; }

Activation torchrun(Asked asked) {
  return set_up(SetUp::kTorchrun, asked, "torchrun is the program, with one task on each node");
}

// torchrun starts a process for each GPU, so several torchruns on a node share its GPUs.
bool is_repeated_torchrun(const SrunFacts& step) {
  return step.program.kind == ProgramKind::kTorchrun && step.tasks > step.nodes;
}

// One torchrun on each of several nodes makes one world of them; anywhere else torchrun is a launcher.
std::string torchrun_reason(const SrunFacts& step) {
  if (is_repeated_torchrun(step)) {
    return cat({"the step starts torchrun ", std::to_string(step.tasks), " times on ", counted(step.nodes, "node"),
                ", and each torchrun starts its own ranks"});
  }
  return "torchrun starts its own ranks, and on one node it needs no plugin";
}

std::string_view torchrun_hint(const SrunFacts& step) {
  return is_repeated_torchrun(step) ? "use --ntasks-per-node=1" : "";
}

bool is_launcher(const Program& program) { return program.kind == ProgramKind::kLauncher; }

// Most launchers hang, or start their ranks twice, if the plugin sets the ranks of their tasks, so their hint never
// says --bootstrap=on. torchrun's does: the plugin can set it up without its options about nodes.
std::string launcher_hint(const SrunFacts& step) {
  const auto& program = step.program;
  if (program.name != "torchrun" || program.remedy.empty()) return program.remedy;
  return cat({program.remedy, ", and use --bootstrap=on", step.tasks > step.nodes ? " and --ntasks-per-node=1" : ""});
}

// The hint for a step that is not set up for a reason other than its program.
std::string hint_to_ask(const SrunFacts& step) {
  if (is_launcher(step.program)) return launcher_hint(step);
  if (step.program.kind == ProgramKind::kTorchrun && !is_torchrun_shape(step)) return std::string(torchrun_hint(step));
  return step.program.remedy.empty() ? std::string(kAskForIt) : step.program.remedy;
}

std::optional<Activation> decide_weakly_without_calls(const UserChoice& choice, const SrunFacts& step) {
  if (step.is_submitit) return leave_alone(choice, "submitit sets its own ranks");
  if (step.has_terminal) return leave_alone(choice, "the step has a terminal (--pty)");
  if (step.program.kind == ProgramKind::kTorchrun) {
    if (is_torchrun_shape(step)) return torchrun(Asked::kWeakly);
    return leave_alone(choice, torchrun_reason(step), torchrun_hint(step));
  }
  if (is_launcher(step.program)) return leave_alone(choice, step.program.reason, launcher_hint(step));
  return std::nullopt;
}

Activation asked_for(const UserChoice& choice) {
  return set_up(SetUp::kAllSettings, choice.asked, cat({choice.origin, " asks for it"}));
}

// If tasks would share GPUs, a step that asks on its own line is refused, and a step of a job that asked is left alone.
Activation decide_weakly(const UserChoice& choice, const Settings& settings, const SrunFacts& step,
                         const SlurmctldAnswers& answers) {
  const auto gpus = read_gpu_request(answers.request, step.nodes).per_node;
  const auto& tasks = answers.tasks_per_node;
  const auto most = tasks.empty() ? 0 : *std::max_element(tasks.begin(), tasks.end());
  if (gpus && lacks_gpus(settings, most, *gpus)) {
    return leave_alone(choice, cat({std::to_string(most), " tasks of a node share ", counted(*gpus, "GPU")}),
                       "use --bootstrap-gpu-share if the tasks are to share GPUs");
  }
  return asked_for(choice);
}

// when=gpu and when=always also set up steps that are no world.
bool takes_any_shape(const Settings& settings) {
  return settings.when.value == When::kGpu || settings.when.value == When::kAlways;
}

std::optional<Activation> decide_shape(const Settings& settings, const SrunFacts& step) {
  if (step.has_terminal) return not_set_up("the step has a terminal (--pty)", hint_to_ask(step));
  if (is_launcher(step.program)) return not_set_up(step.program.reason, launcher_hint(step), step.program.is_stuck);
  if (step.program.kind == ProgramKind::kTorchrun) {
    if (!is_torchrun_shape(step)) return not_set_up(torchrun_reason(step), torchrun_hint(step));
    return std::nullopt;
  }
  if (takes_any_shape(settings)) return std::nullopt;
  if (step.tasks < 2) return not_set_up("the step has one task", kMoreTasks);
  if (step.program.kind == ProgramKind::kShell || step.program.kind == ProgramKind::kScript) {
    return not_set_up(step.program.reason, step.program.remedy.empty() ? kAskForJob : step.program.remedy);
  }
  if (step.tasks % std::max(1U, step.nodes) != 0) {
    return not_set_up(cat({counted(step.tasks, "task"), " on ", counted(step.nodes, "node"),
                           " cannot be the same number on each node"}),
                      "use --ntasks-per-node=N, or --bootstrap=on if each task has a GPU");
  }
  return std::nullopt;
}

Activation other_partition(const SrunFacts& step) {
  return not_set_up("its partition is not in partitions= of plugstack.conf", hint_to_ask(step));
}

// An --exclusive job gets the GPUs of its nodes without a request. Its steps do not.
Activation lacks_request(const GpuRequest& gpus, const SrunFacts& step) {
  if (gpus.has_gpus || step.gpus_of_job == 0) {
    return not_set_up(gpus.reason, gpus.hint.empty() ? hint_to_ask(step) : std::string(gpus.hint));
  }
  return not_set_up(
      "the job has GPUs, and this step requests none",
      cat({"use --gpus-per-node=", std::to_string(step.gpus_of_job), ", or --bootstrap=on for CPUs alone"}));
}

// Returns why the step does not have one task for each GPU of its nodes; nullopt: it has.
std::optional<Activation> decide_gpus(const GpuRequest& gpus, const SrunFacts& step, const SlurmctldAnswers& answers) {
  if (!gpus.per_node) return lacks_request(gpus, step);
  const auto& tasks = answers.tasks_per_node;
  const auto [least, most] = std::minmax_element(tasks.begin(), tasks.end());
  if (tasks.empty()) return not_set_up("slurmctld did not say how many tasks each node has", kAskForIt);
  if (*least != *most) {
    return not_set_up(describe_spread(step.tasks, *least, *most),
                      cat({"use --ntasks-per-node=", std::to_string(step.tasks / std::max(1U, step.nodes)),
                           " for an even spread", *most > *gpus.per_node ? "" : ", or --bootstrap=on to set it up"}));
  }
  const auto of_node = *gpus.per_node;
  if (*most == of_node) return std::nullopt;
  auto reason = cat({"each node has ", counted(*most, "task"), " and ", counted(of_node, "GPU")});
  if (*most > of_node) {
    return not_set_up(std::move(reason), cat({"use --gpus-per-node=", std::to_string(*most),
                                              " for a GPU for each task, or --bootstrap-gpu-share to share GPUs"}));
  }
  return not_set_up(std::move(reason),
                    cat({"use --ntasks-per-node=", std::to_string(of_node),
                         " for a task for each GPU, or --bootstrap=on for tasks with several GPUs"}));
}

Activation decide_unasked(const Settings& settings, const SrunFacts& step, const SlurmctldAnswers& answers) {
  if (!has_partitions(settings, answers.partition)) return other_partition(step);
  const auto gpus = read_gpu_request(answers.request, step.nodes);
  if (step.program.kind == ProgramKind::kTorchrun) {
    if (!gpus.has_gpus && settings.when.value != When::kAlways) return lacks_request(gpus, step);
    return torchrun(Asked::kUnasked);
  }
  if (settings.when.value == When::kAlways) return set_up(SetUp::kWorld, Asked::kUnasked, "the site sets when=always");
  if (settings.when.value == When::kGpu) {
    if (!gpus.has_gpus) return lacks_request(gpus, step);
    return set_up(SetUp::kWorld, Asked::kUnasked, "the step has GPUs, and the site sets when=gpu");
  }
  if (auto activation = decide_gpus(gpus, step, answers)) {
    activation->needs_warning = settings.hints.value && gpus.has_gpus && step.program.kind == ProgramKind::kTraining;
    return std::move(*activation);
  }
  if (step.program.kind == ProgramKind::kUnseen) return not_set_up(step.program.reason, kAskOrNot, true);
  return set_up(SetUp::kWorld, Asked::kUnasked, cat({"a GPU for each task, and ", step.program.reason}));
}

// For when=observe: reports what when=world would do, and sets up nothing.
Activation observed(Activation activation) {
  activation.decision.reason = cat({"when=observe; when=world would say: ", activation.line()});
  activation.decision.set_up = SetUp::kNothing;
  activation.decision.is_observed = true;
  activation.hint.clear();
  activation.needs_warning = false;
  return activation;
}

// when=never is for the start and the end of a roll-out: some hosts have no plugin, and would start their tasks without
// ranks. A step that asks is not refused, since only the nodes that have the plugin would end their tasks.
Activation decide_never(const UserChoice& choice) {
  constexpr std::string_view kSiteSetsNever = "the site sets when=never, as at the start and the end of a roll-out";
  if (choice.asked == Asked::kUnasked) return not_set_up(std::string(kSiteSetsNever));
  return leave_alone(choice, kSiteSetsNever, "ask your administrator when that ends, and start the step again then");
}

// Rules for unasked steps alone: those of the site, for submitit, and for several components.
std::optional<Activation> decide_site(const Settings& settings, const SrunFacts& step) {
  if (step.is_submitit) return not_set_up("submitit sets its own ranks", kAskForIt);
  if (settings.when.value == When::kAsked)
    return not_set_up("no option or variable asks for it, and the site sets when=asked", hint_to_ask(step));
  if (!step.partition.empty() && !has_partitions(settings, step.partition)) return other_partition(step);
  if (step.has_components) return not_set_up("the step has several components (:)", hint_to_ask(step));
  return std::nullopt;
}

}  // namespace

bool needs_program(const UserChoice& choice, const Settings& settings, const SrunFacts& step) {
  if (choice.is_off || settings.when.value == When::kNever) return false;
  if (choice.asked != Asked::kUnasked) return true;
  if (step.is_explained) return true;  // the hint depends on the program
  const bool can_be_set_up = step.tasks > 1 || takes_any_shape(settings);
  return !decide_site(settings, step) && !step.has_terminal && can_be_set_up;
}

std::string Activation::line() const { return verdict(decision, hint); }

std::optional<Activation> decide_without_calls(const UserChoice& choice, const Settings& settings,
                                               const SrunFacts& step) {
  if (!choice.wrong.empty()) {
    const bool needs_warning = settings.when.value != When::kNever && !decide_site(settings, step);
    return not_set_up(cat({choice.wrong, ", and counts as off"}), {}, needs_warning);
  }
  if (choice.is_off) return not_set_up(cat({choice.origin, " switches it off"}));
  if (settings.when.value == When::kNever) return decide_never(choice);
  // srun hands its decision to the components of a step through their environments. With a user's --export only the
  // first component gets the decision, and its ranks would wait for the others.
  if (choice.asked != Asked::kUnasked && step.has_components && step.has_own_export) {
    return refuse_or_leave_alone(
        choice, "the step has several components, and --export keeps the decision of srun from all but the first",
        cat({"begin the list of --export with ", kExportValue}));
  }
  if (choice.asked == Asked::kStrongly) return asked_for(choice);
  if (choice.asked == Asked::kWeakly) return decide_weakly_without_calls(choice, step);
  auto activation = decide_site(settings, step);
  if (activation) return activation;
  activation = decide_shape(settings, step);
  if (activation && settings.when.value == When::kObserve) return observed(std::move(*activation));
  return activation;
}

Activation decide_activation(const UserChoice& choice, const Settings& settings, const SrunFacts& step,
                             const SlurmctldAnswers& answers) {
  if (auto activation = decide_without_calls(choice, settings, step)) return std::move(*activation);
  if (choice.asked == Asked::kWeakly) return decide_weakly(choice, settings, step, answers);
  auto activation = decide_unasked(settings, step, answers);
  return settings.when.value == When::kObserve ? observed(std::move(activation)) : activation;
}

Activation refuse_or_leave_alone(const UserChoice& choice, const std::string& why, std::string_view hint) {
  if (choice.asked == Asked::kWeakly) return leave_alone(choice, why, hint);
  auto activation = not_set_up(why, hint);
  activation.decision.asked = choice.asked;
  return activation;
}

std::string announcement(const Decision& decision, std::uint32_t tasks, std::string_view hosts,
                         std::string_view first) {
  const auto what =
      decision.set_up == SetUp::kTorchrun
          ? cat({counted(tasks, "torchrun"), " on ", hosts, " form one world; they meet on ", first})
          : cat({counted(tasks, "task"), " on ", hosts, " are the ranks of one world; rank 0 is on ", first});
  return cat({what, "; use --bootstrap=off for independent runs"});
}

Activation decide_without_address(const UserChoice& choice, const std::string& why) {
  auto activation = refuse_or_leave_alone(choice, why, "name an address of that node with --bootstrap-addr");
  activation.needs_warning = true;
  return activation;
}

std::vector<std::string> program_warnings(const Decision& decision, const SrunFacts& step) {
  std::vector<std::string> warnings;
  const auto& program = step.program;
  if (decision.set_up == SetUp::kNothing) return warnings;
  const bool is_asked = decision.asked != Asked::kUnasked && step.tasks > 1;
  const bool starts_ranks = is_launcher(program) && (program.starts_ranks || program.is_stuck);
  if (is_asked && starts_ranks) warnings.push_back(cat({program.reason, "; ", program.remedy}));
  if (is_asked && is_repeated_torchrun(step))
    warnings.push_back(cat({torchrun_reason(step), "; ", torchrun_hint(step)}));
  if (!program.closed.empty()) warnings.push_back(program.closed);
  return warnings;
}

Activation decide_without_answers(const UserChoice& choice, const std::string& why) {
  if (choice.asked != Asked::kUnasked && !choice.is_off) return asked_for(choice);
  return not_set_up(why, kAskOrNot, true);
}

}  // namespace bootstrap
