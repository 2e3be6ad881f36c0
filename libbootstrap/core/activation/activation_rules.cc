// Which steps are set up, and why: the request for GPUs, and the rules in their order.
// SPDX-License-Identifier: Apache-2.0
#include "core/activation/activation_rules.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint64_t kMostGpus = 65536;

// "gres:gpu:a100:2", "gres/gpu:2" and "gres/gpu=2" without what stands before the name of the resource.
std::string_view resource_of(std::string_view item) {
  if (item.starts_with("gres:") || item.starts_with("gres/")) item.remove_prefix(5);
  return item;
}

bool names(std::string_view item, std::string_view resource) {
  const auto rest = resource_of(item);
  return rest.starts_with(resource) && (rest.size() == resource.size() || rest[resource.size()] == ':' ||
                                        rest[resource.size()] == '=' || rest[resource.size()] == '(');
}

bool any_names(std::string_view list, std::string_view resource) {
  const auto items = split(list, ',');
  return std::any_of(items.begin(), items.end(), [&](std::string_view item) { return names(item, resource); });
}

// "1g.5gb", "a100_3g.20gb": how NVML, and with it Slurm, names the kinds of MIG instances.
bool is_mig_kind(std::string_view kind) {
  for (std::size_t at = kind.find("g."); at != std::string_view::npos; at = kind.find("g.", at + 1)) {
    const auto rest = kind.substr(at + 2);
    const auto digits = rest.find_first_not_of("0123456789");
    if (at > 0 && is_digit(kind[at - 1]) && digits != 0 && digits != std::string_view::npos &&
        rest.substr(digits).starts_with("gb")) {
      return true;
    }
  }
  return false;
}

struct Counts {
  std::map<std::string_view, std::uint64_t> of_kind;  // "" stands for GPUs of any kind
  bool is_readable = true;
};

// srun appends its own --gres to the job's: "gres/gpu:2,gres/gpu:2" is one request, and the last one counts.
Counts count_gpus(std::string_view list) {
  Counts counts;
  for (const auto item : split(list, ',')) {
    if (!names(item, "gpu")) continue;
    auto words = split(resource_of(item), ':');
    words.erase(words.begin());
    std::string_view kind;
    std::uint64_t count = 1;
    // "gpu", "gpu:2", "gpu:a100" or "gpu:a100:2"; "gpu=2" and "gpu:a100=2" since 24.11.
    auto last = words.empty() ? resource_of(item) : words.back();
    const auto equals = last.find('=');
    const auto number = parse_unsigned(equals == std::string_view::npos ? last : last.substr(equals + 1), kMostGpus);
    if (number) count = *number;
    if (!words.empty() && (equals != std::string_view::npos || !number || words.size() > 1)) {
      kind = equals != std::string_view::npos ? words.front().substr(0, words.front().find('=')) : words.front();
    }
    if (words.size() > 2 || (words.size() == 2 && !number) || (equals != std::string_view::npos && !number)) {
      counts.is_readable = false;
    }
    counts.of_kind[kind] = count;
  }
  return counts;
}

// Slurm separates the bindings of several resources by "+": "gres/gpu:single:1+gres/nic:none".
bool binds_gpus(std::string_view binds) {
  for (auto bind : split(binds, '+')) {
    bind = resource_of(bind);
    if (!bind.starts_with("gpu:")) continue;
    bind.remove_prefix(4);
    if (bind.starts_with("verbose,")) bind.remove_prefix(8);
    if (bind != "none" && bind != "verbose" && !bind.empty()) return true;
  }
  return false;
}

std::uint64_t sum_of(const Counts& counts) {
  std::uint64_t sum = 0;
  for (const auto& [kind, count] : counts.of_kind) sum += count;
  return sum;
}

// "gpu:2(IDX:0,3)" without the indexes.
std::string without_indexes(std::string_view detail) {
  std::string text;
  bool is_index = false;
  for (const char c : detail) {
    is_index = is_index || c == '(';
    if (!is_index) text += c;
    if (c == ')') is_index = false;
  }
  return text;
}

struct Share {
  std::string list;      // of each node; empty: they differ, or are not known
  std::string_view why;  // it is empty
};

// In a step that has all of its job's nodes and GPUs.
Share share_of_job(const TresRequest& request, std::uint32_t nodes) {
  constexpr std::string_view kUnknown = "--gpus=N does not say how many GPUs each node gets";
  if (request.job_nodes.size() != nodes) return {"", kUnknown};
  const auto share = without_indexes(request.job_nodes.front());
  const auto gpus = sum_of(count_gpus(share));
  std::uint64_t all = 0;
  bool is_even = true;
  for (const auto& node : request.job_nodes) {
    const auto list = without_indexes(node);
    const auto count = sum_of(count_gpus(list));
    is_even = is_even && count == gpus;
    all += count;
  }
  if (all != sum_of(count_gpus(request.per_step))) return {"", kUnknown};
  return is_even ? Share{share, ""} : Share{"", "Slurm gave the nodes different numbers of the GPUs of --gpus=N"};
}

constexpr std::string_view kPerNode = "use --gpus-per-node=N for a GPU for each task, or --bootstrap=on";

GpuRequest refuse(GpuRequest request, std::string reason, std::string_view hint = {}) {
  request.per_node.reset();
  request.reason = std::move(reason);
  request.hint = hint;
  return request;
}

}  // namespace

bool needs_job_nodes(const TresRequest& request, std::uint32_t nodes) {
  return nodes != 1 && any_names(request.per_step, "gpu") && !any_names(request.per_node, "gpu") &&
         !any_names(request.per_socket, "gpu") && !any_names(request.per_task, "gpu");
}

GpuRequest read_gpu_request(const TresRequest& request, std::uint32_t nodes) {
  GpuRequest found;
  const auto lists = {std::string_view(request.per_node), std::string_view(request.per_step),
                      std::string_view(request.per_socket), std::string_view(request.per_task)};
  const auto any = [&](std::string_view resource) {
    return std::any_of(lists.begin(), lists.end(), [&](std::string_view list) { return any_names(list, resource); });
  };
  const bool has_shares = any("shard") || any("mps");
  found.has_gpus = has_shares || any("gpu");
  if (!found.has_gpus) return refuse(std::move(found), "the step has no GPUs");
  if (has_shares) return refuse(std::move(found), "the step has shares of GPUs (shard, MPS)");
  if (any_names(request.per_task, "gpu"))
    return refuse(std::move(found), "the step has GPUs per task (--gpus-per-task)", kPerNode);
  if (any_names(request.per_socket, "gpu"))
    return refuse(std::move(found), "the step has GPUs per socket (--gpus-per-socket)", kPerNode);
  if (binds_gpus(request.bind))
    return refuse(std::move(found), "Slurm binds each task to its own GPUs (--gpu-bind, --ntasks-per-gpu)", kPerNode);

  auto list = any_names(request.per_node, "gpu") ? request.per_node : request.per_step;
  if (needs_job_nodes(request, nodes)) {
    auto share = share_of_job(request, nodes);
    if (share.list.empty()) return refuse(std::move(found), std::string(share.why), kPerNode);
    list = std::move(share.list);
  }
  const auto counts = count_gpus(list);
  if (!counts.is_readable) return refuse(std::move(found), "the step's request for GPUs has an unknown form");
  if (counts.of_kind.count("") != 0 && counts.of_kind.size() > 1) {
    return refuse(std::move(found), "the step asks for GPUs of one type and for GPUs of any type");
  }
  for (const auto& [kind, count] : counts.of_kind) {
    if (is_mig_kind(kind)) return refuse(std::move(found), "the step has MIG instances");
  }
  const auto sum = sum_of(counts);
  if (sum == 0) {
    found.has_gpus = false;  // --gres=gpu:0
    return refuse(std::move(found), "the step has no GPUs");
  }
  found.per_node = static_cast<std::uint32_t>(std::min<std::uint64_t>(sum, kMostGpus));
  return found;
}

namespace {

constexpr std::string_view kAskForIt = "use --bootstrap=on to set it up";
constexpr std::string_view kAskForJob =
    "use --bootstrap=on to set it up, or #SBATCH --bootstrap=on for all steps of a job";
constexpr std::string_view kMoreTasks =
    "use --ntasks-per-node=N to start a task for each of N GPUs, or --bootstrap=on to set up one task";

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
  activation.hint = hint_of(activation.decision);
  return activation;
}

// A job asked for all its steps, and this one is better left alone. The user may have meant it, and reads a warning.
Activation leave_alone(const UserChoice& choice, const std::string& reason,
                       std::string_view hint = "use --bootstrap=on on the line of srun to set it up all the same") {
  auto activation = nothing(cat({reason, ", although ", choice.origin, " asks for it"}), hint);
  activation.needs_warning = true;
  return activation;
}

bool is_torchrun_shape(const SrunFacts& step) { return step.nodes > 1 && step.tasks == step.nodes; }

Activation torchrun(Asked asked) {
  return set_up(SetUp::kTorchrun, asked, "torchrun is the program, with one task on each node");
}

// torchrun starts a process for each GPU: several of them on a node share its GPUs.
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
  return is_repeated_torchrun(step) ? "use --ntasks-per-node=1" : kAskForIt;
}

bool is_launcher(const Program& program) { return program.kind == ProgramKind::kLauncher; }

std::optional<Activation> decide_weakly_without_calls(const UserChoice& choice, const SrunFacts& step) {
  if (step.is_submitit) return leave_alone(choice, "submitit sets its own ranks");
  if (step.has_terminal) return leave_alone(choice, "the step has a terminal (--pty)");
  if (step.program.kind == ProgramKind::kTorchrun) {
    if (is_torchrun_shape(step)) return torchrun(Asked::kWeakly);
    return leave_alone(choice, torchrun_reason(step), torchrun_hint(step));
  }
  if (is_launcher(step.program)) return leave_alone(choice, step.program.reason);
  return std::nullopt;
}

Activation asked_for(const UserChoice& choice) {
  return set_up(SetUp::kAllSettings, choice.asked, cat({choice.origin, " asks for it"}));
}

// It gets what it asks for, and reads what it may not have meant.
Activation asked_for_itself(const UserChoice& choice, const SrunFacts& step) {
  auto activation = asked_for(choice);
  if (is_repeated_torchrun(step)) {
    activation.decision.reason +=
        cat({", but ", torchrun_reason(step), " (", torchrun_hint(step), " to start one on each node)"});
  }
  return activation;
}

// A step that asks for itself is refused where tasks would share GPUs. One of a job that asked is left alone.
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

// `when=gpu` and `always` take more than worlds.
bool takes_any_shape(const Settings& settings) {
  return settings.when.value == When::kGpu || settings.when.value == When::kAlways;
}

std::optional<Activation> decide_shape(const Settings& settings, const SrunFacts& step) {
  if (step.has_terminal) return nothing("the step has a terminal (--pty)", kAskForIt);
  if (is_launcher(step.program)) return nothing(step.program.reason, kAskForIt);
  if (step.program.kind == ProgramKind::kTorchrun) {
    if (!is_torchrun_shape(step)) return nothing(torchrun_reason(step), torchrun_hint(step));
    return std::nullopt;
  }
  if (takes_any_shape(settings)) return std::nullopt;
  if (step.tasks < 2) return nothing("the step has one task", kMoreTasks);
  if (step.program.kind == ProgramKind::kShell || step.program.kind == ProgramKind::kScript) {
    return nothing(step.program.reason, kAskForJob);
  }
  if (step.tasks % std::max(1U, step.nodes) != 0) {
    return nothing(cat({counted(step.tasks, "task"), " on ", counted(step.nodes, "node"),
                        " cannot be the same number on each node"}),
                   "use --ntasks-per-node=N, or --bootstrap=on to set it up");
  }
  return std::nullopt;
}

Activation other_partition() { return nothing("its partition is not in partitions= of plugstack.conf", kAskForIt); }

Activation uneven(const SrunFacts& step, std::uint32_t least, std::uint32_t most) {
  return nothing(describe_spread(step.tasks, least, most),
                 cat({"use --ntasks-per-node=", std::to_string(step.tasks / std::max(1U, step.nodes)),
                      " for an even spread, or --bootstrap=on to set it up"}));
}

// The tasks of this step that are not one for each GPU of their node.
std::optional<Activation> decide_gpus(const GpuRequest& gpus, const SrunFacts& step, const SlurmctldAnswers& answers) {
  if (!gpus.per_node) return nothing(gpus.reason, gpus.hint.empty() ? kAskForIt : gpus.hint);
  const auto& tasks = answers.tasks_per_node;
  const auto [least, most] = std::minmax_element(tasks.begin(), tasks.end());
  if (tasks.empty()) return nothing("slurmctld did not say how many tasks each node has", kAskForIt);
  if (*least != *most) return uneven(step, *least, *most);
  const auto of_node = *gpus.per_node;
  if (*most == of_node) return std::nullopt;
  auto reason = cat({"each node has ", counted(*most, "task"), " and ", counted(of_node, "GPU")});
  if (*most > of_node) {
    return nothing(std::move(reason), cat({"use --gpus-per-node=", std::to_string(*most),
                                           " for a GPU for each task, or --bootstrap-gpu-share to share GPUs"}));
  }
  return nothing(std::move(reason), cat({"use --ntasks-per-node=", std::to_string(of_node),
                                         " for a task for each GPU, or --bootstrap=on for tasks with several GPUs"}));
}

Activation decide_unasked(const Settings& settings, const SrunFacts& step, const SlurmctldAnswers& answers) {
  if (!has_partitions(settings, answers.partition)) return other_partition();
  const auto gpus = read_gpu_request(answers.request, step.nodes);
  if (step.program.kind == ProgramKind::kTorchrun) {
    if (!gpus.has_gpus && settings.when.value != When::kAlways) return nothing(gpus.reason, kAskForIt);
    return torchrun(Asked::kUnasked);
  }
  if (settings.when.value == When::kAlways) return set_up(SetUp::kWorld, Asked::kUnasked, "the site sets when=always");
  if (settings.when.value == When::kGpu) {
    if (!gpus.has_gpus) return nothing(gpus.reason, kAskForIt);
    return set_up(SetUp::kWorld, Asked::kUnasked, "the step has GPUs, and the site sets when=gpu");
  }
  if (auto activation = decide_gpus(gpus, step, answers)) return std::move(*activation);
  if (step.program.kind == ProgramKind::kUnseen) {
    auto activation = nothing(step.program.reason, "use --bootstrap=on to set it up, or --bootstrap=off");
    activation.needs_warning = true;
    return activation;
  }
  return set_up(SetUp::kWorld, Asked::kUnasked, cat({"a GPU for each task, and ", step.program.reason}));
}

// Reports what `world` would do, and does nothing.
Activation observed(Activation activation) {
  activation.decision.reason = cat({"when=observe; when=world would say: ", activation.line()});
  activation.decision.set_up = SetUp::kNothing;
  activation.decision.is_observed = true;
  activation.hint.clear();
  activation.needs_warning = false;
  return activation;
}

// srun hands its decision to the components of a step through their environments. An --export of the user's keeps it
// from all but the first, which would wait for the others. Where the step asked for itself the first one refuses it.
Activation unreachable(const UserChoice& choice) {
  const auto remedy = cat({"begin the list of --export with ", kExportValue});
  constexpr std::string_view kWhy =
      "the step has several components, and --export keeps the decision of srun from all but the first";
  if (choice.asked == Asked::kStrongly) {
    auto activation = nothing(std::string(kWhy), remedy);
    activation.decision.asked = choice.asked;
    return activation;
  }
  auto activation = nothing(cat({kWhy, ", although ", choice.origin, " asks for it"}), remedy);
  activation.needs_warning = true;
  return activation;
}

// `when` is about unasked steps in the partitions of the site.
std::optional<Activation> decide_site(const Settings& settings, const SrunFacts& step) {
  if (step.is_submitit) return nothing("submitit sets its own ranks", kAskForIt);
  if (settings.when.value == When::kAsked)
    return nothing("no option or variable asks for it, and the site sets when=asked", kAskForIt);
  if (!step.partition.empty() && !has_partitions(settings, step.partition)) return other_partition();
  if (step.has_components) return nothing("the step has several components (:)", kAskForIt);
  return std::nullopt;
}
}  // namespace

std::string Activation::line() const { return verdict(decision, hint); }

std::optional<Activation> decide_without_calls(const UserChoice& choice, const Settings& settings,
                                               const SrunFacts& step) {
  if (choice.is_off) return nothing(cat({choice.origin, " switches it off"}));
  if (choice.asked != Asked::kUnasked && step.has_components && step.has_own_export) return unreachable(choice);
  if (choice.asked == Asked::kStrongly) return asked_for_itself(choice, step);
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
  auto activation = nothing(why, "use --bootstrap=on to set it up, or --bootstrap=off");
  activation.needs_warning = true;
  return activation;
}

}  // namespace bootstrap
