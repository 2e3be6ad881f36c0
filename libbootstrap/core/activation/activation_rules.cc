// Which steps are set up, and why: one ladder of conditions.
// SPDX-License-Identifier: Apache-2.0
#include "core/activation/activation_rules.h"

#include <algorithm>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kAskForIt = "say --bootstrap=on to set it up";
constexpr std::string_view kDealEvenly = "give --ntasks-per-node, or say --bootstrap=on";
constexpr std::string_view kUneven = "its tasks are dealt unevenly, ";

Activation nothing(std::string reason, std::string_view hint = {}) {
  Activation activation;
  activation.decision.reason = std::move(reason);
  activation.hint = hint;
  return activation;
}

Activation set_up(SetUp what, Asked asked, std::string reason) {
  Activation activation;
  activation.decision.set_up = what;
  activation.decision.asked = asked;
  activation.decision.reason = std::move(reason);
  if (asked == Asked::kUnasked) activation.hint = "say --bootstrap=off to leave it as Slurm starts it";
  return activation;
}

// A job asked for all its steps, and this one is better left alone: its user may have meant it, so he is told.
Activation leave_alone(const UserChoice& choice, std::string reason,
                       std::string_view hint = "say --bootstrap=on on its srun line") {
  auto activation = nothing(std::move(reason), cat({choice.origin, " asks for it; ", hint}));
  activation.is_told = true;
  return activation;
}

bool is_torchrun_shape(const SrunFacts& step) { return step.nodes > 1 && step.tasks == step.nodes; }

Activation torchrun(Asked asked) {
  return set_up(SetUp::kTorchrun, asked, "torchrun is its program, one task on each of several nodes");
}

// One torchrun on each of several nodes makes one world of them; anywhere else torchrun is a launcher.
std::string torchrun_reason(const SrunFacts& step) {
  if (step.nodes < 2) return "torchrun starts its own ranks, on one node";
  return "torchrun starts its own ranks, and is not one task on each node";
}

bool is_launcher(const Program& program) { return program.kind == ProgramKind::kLauncher; }

std::optional<Activation> decide_weakly_without_calls(const UserChoice& choice, const SrunFacts& step) {
  if (step.is_submitit) return leave_alone(choice, "submitit sets its own ranks");
  if (step.has_terminal) return leave_alone(choice, "it has a terminal (--pty)");
  if (step.program.kind == ProgramKind::kTorchrun) {
    if (is_torchrun_shape(step)) return torchrun(Asked::kWeakly);
    return leave_alone(choice, torchrun_reason(step));
  }
  if (is_launcher(step.program)) return leave_alone(choice, step.program.reason);
  return std::nullopt;
}

Activation asked_for(const UserChoice& choice) {
  return set_up(SetUp::kAllSettings, choice.asked, cat({"asked for by ", choice.origin}));
}

// A step that asks for itself is refused where tasks would share GPUs. One of a job that asked is left alone.
Activation decide_weakly(const UserChoice& choice, const Settings& settings, const SrunFacts& step,
                         const SlurmctldAnswers& answers) {
  const auto gpus = read_gpu_request(answers.request, step.nodes).per_node;
  const auto& tasks = answers.tasks_per_node;
  const auto most = tasks.empty() ? 0 : *std::max_element(tasks.begin(), tasks.end());
  if (gpus && lacks_gpus(settings, most, *gpus)) {
    return leave_alone(choice, cat({std::to_string(most), " tasks of a node share ", counted(*gpus, "GPU")}),
                       "say --bootstrap-gpu-share if it is meant");
  }
  return asked_for(choice);
}

// `when=gpu` and `always` take more than worlds.
bool takes_any_shape(const Settings& settings) {
  return settings.when.value == When::kGpu || settings.when.value == When::kAlways;
}

std::optional<Activation> decide_shape(const Settings& settings, const SrunFacts& step) {
  if (step.has_terminal) return nothing("it has a terminal (--pty)", kAskForIt);
  if (is_launcher(step.program)) return nothing(step.program.reason, kAskForIt);
  if (step.program.kind == ProgramKind::kTorchrun) {
    if (!is_torchrun_shape(step)) return nothing(torchrun_reason(step), kAskForIt);
    return std::nullopt;
  }
  if (takes_any_shape(settings)) return std::nullopt;
  if (step.tasks < 2) return nothing("it is one task", kAskForIt);
  if (step.program.kind == ProgramKind::kShell || step.program.kind == ProgramKind::kScript) {
    return nothing(step.program.reason, kAskForIt);
  }
  if (step.tasks % std::max(1U, step.nodes) != 0) {
    return nothing(cat({kUneven, std::to_string(step.tasks), " on ", std::to_string(step.nodes), " nodes"}),
                   kDealEvenly);
  }
  return std::nullopt;
}

Activation other_partition() {
  return nothing("its partition is not among those of partitions= in plugstack.conf", kAskForIt);
}

// Why the tasks of this step are not one for each GPU of their node; empty: they are.
std::string why_no_world(const GpuRequest& gpus, const SlurmctldAnswers& answers) {
  if (!gpus.per_node) return gpus.reason;
  const auto& tasks = answers.tasks_per_node;
  const auto [least, most] = std::minmax_element(tasks.begin(), tasks.end());
  if (tasks.empty()) return "slurmctld did not say how many tasks each node has";
  if (*least != *most) {
    return cat({kUneven, std::to_string(*least), " to ", std::to_string(*most), " tasks on a node"});
  }
  if (*most == *gpus.per_node) return {};
  return cat({counted(*most, "task"), " on each node, and ", counted(*gpus.per_node, "GPU")});
}

Activation decide_unasked(const Settings& settings, const SrunFacts& step, const SlurmctldAnswers& answers) {
  if (!has_partitions(settings, answers.partition)) return other_partition();
  const auto gpus = read_gpu_request(answers.request, step.nodes);
  if (step.program.kind == ProgramKind::kTorchrun) {
    if (!gpus.has_gpus && settings.when.value != When::kAlways) return nothing(gpus.reason, kAskForIt);
    return torchrun(Asked::kUnasked);
  }
  if (settings.when.value == When::kAlways) return set_up(SetUp::kWorld, Asked::kUnasked, "when=always");
  if (settings.when.value == When::kGpu) {
    if (!gpus.has_gpus) return nothing(gpus.reason, kAskForIt);
    return set_up(SetUp::kWorld, Asked::kUnasked, "it asked for GPUs (when=gpu)");
  }
  if (auto why = why_no_world(gpus, answers); !why.empty()) {
    const bool is_uneven = gpus.per_node && why.starts_with(kUneven);
    return nothing(std::move(why), is_uneven ? kDealEvenly : kAskForIt);
  }
  if (step.program.kind == ProgramKind::kUnseen) {
    auto activation = nothing(step.program.reason, "say --bootstrap=on or --bootstrap=off");
    activation.is_told = true;
    return activation;
  }
  return set_up(SetUp::kWorld, Asked::kUnasked, cat({"a GPU for each task, and ", step.program.reason}));
}

// What `world` would do is told, and not done.
Activation observed(Activation activation) {
  activation.decision.reason = cat({"when=observe; when=world would say: ", activation.line()});
  activation.decision.set_up = SetUp::kNothing;
  activation.decision.is_observed = true;
  activation.hint.clear();
  activation.is_told = false;
  return activation;
}

// srun hands its decision to the components of a step through their environments. An --export of the user's keeps it
// from all but the first, which would wait for the others. Where the step asked for itself the first one refuses it.
Activation unheard(const UserChoice& choice) {
  const auto remedy = cat({"begin the list of --export with ", kExportValue});
  constexpr const char* kWhy = "it has several components, and an --export that keeps them from hearing of it; ";
  if (choice.asked == Asked::kStrongly) {
    auto activation = nothing(cat({kWhy, remedy}));
    activation.decision.asked = choice.asked;
    return activation;
  }
  auto activation = nothing(cat({kWhy, choice.origin, " asks for it"}), remedy);
  activation.is_told = true;
  return activation;
}

// What `when` is about: the steps that nobody asked for or refused, in the partitions of the site.
std::optional<Activation> decide_site(const Settings& settings, const SrunFacts& step) {
  if (step.is_submitit) return nothing("submitit sets its own ranks", kAskForIt);
  if (settings.when.value == When::kAsked) return nothing("nobody asked for it (when=asked)", kAskForIt);
  if (!step.partition.empty() && !has_partitions(settings, step.partition)) return other_partition();
  if (step.has_components) return nothing("it has several components", kAskForIt);
  return std::nullopt;
}
}  // namespace

std::string Activation::line() const {
  const bool is_set_up = decision.set_up != SetUp::kNothing;
  const auto* const what = decision.set_up == SetUp::kTorchrun ? "set up for torchrun: " : "set up: ";
  return cat({is_set_up ? what : "not set up: ", decision.reason, hint.empty() ? "" : "; ", hint});
}

std::optional<Activation> decide_without_calls(const UserChoice& choice, const Settings& settings,
                                               const SrunFacts& step) {
  if (choice.is_off) return nothing(cat({"switched off by ", choice.origin}));
  if (choice.asked != Asked::kUnasked && step.has_components && step.has_own_export) return unheard(choice);
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

Activation decide_without_answers(const UserChoice& choice, const std::string& why) {
  if (choice.asked != Asked::kUnasked && !choice.is_off) return asked_for(choice);
  auto activation = nothing(why, "say --bootstrap=on to set it up, or --bootstrap=off");
  activation.is_told = true;
  return activation;
}

}  // namespace bootstrap
