// The plan: what all tasks of a step on this node get, all variables of one task, and how a task reads its own plan.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan.h"

#include <algorithm>

#include "core/plan/frameworks.h"
#include "core/settings/variables.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// Longer layouts are used only in slurmstepd, and removed from the tasks' environment.
constexpr std::size_t kMaxLayoutInTasks = 2048;

void add_gpu_order(VariableList& variables, const NodeGpus& gpus, Launcher launcher) {
  const auto& kind = gpus.kind();
  if (kind.order_variable.empty() || (gpus.is_untouched && gpus.list.has_uuids)) return;
  // CUDA's own default is fastest first, which is neither Slurm's order nor the same on every node.
  variables.common(
      kind.order_variable, "PCI_BUS_ID",
      launcher == Launcher::kMpirun ? "so that all nodes count GPUs alike" : "Slurm counts GPUs in this order");
}

std::string warn_of_mig(const StepPlan& plan, const Layout& layout, const Settings& settings) {
  const bool is_asked = settings.gpu.source >= Source::kEnvironment;
  if (!plan.gpus || !plan.gpus->list.has_mig || is_asked || layout.size() == layout.node_count()) return {};
  return "each task has one MIG instance, because CUDA uses no more; NCCL does not connect instances of one GPU, and "
         "makes no direct copies between instances: use Gloo or MPI, or request whole GPUs; --bootstrap-gpu=narrow "
         "turns this warning off";
}

void add_messages(std::vector<std::string>& names, const Environment& environment) {
  if (is_our_export(environment.get(kExportVariable).value_or(""))) names.emplace_back(kExportVariable);
  for (const auto name : kMessages) {
    if (environment.is_there(name)) names.emplace_back(name);
  }
}

// Leftovers are removed also if this step sets them again, so that no task has the outer step's values until then.
std::vector<std::string> removals(const StepPlan& plan, const StepFacts& facts) {
  const auto& environment = facts.environment;
  const ExportRecord record(environment);
  const bool is_own = record.step_tag() == step_tag(facts.id);  // a task that is set up reads its own plan
  std::vector<std::string> names;
  if (!is_own) names = record.unchanged(environment);
  const auto layout = environment.get(kLayoutVariable);
  const bool is_useless =
      !layout || layout->size() > kMaxLayoutInTasks || facts.layout_source != LayoutSource::kStepLayout;
  if (is_useless && environment.is_there(kLayoutVariable)) names.emplace_back(kLayoutVariable);
  // A leftover in any case, and this step does not replace it if too few ports are free.
  if (!is_own && plan.ports.count_of_task > 0 && environment.is_there(kPortsVariable))
    names.emplace_back(kPortsVariable);
  add_messages(names, environment);
  return names;
}

// Keeps only what torchrun reads, because its workers get the rest from torchrun. Gloo looks up the name of its own
// host: if names do not resolve, the workers would meet on 127.0.0.1.
void keep_torchruns(Variables& variables, bool has_names) {
  std::erase_if(variables, [=](const PlannedVariable& variable) {
    const bool is_kept = variable.name == "GLOO_SOCKET_IFNAME" && (!has_names || variable.action == Action::kReplaced);
    return variable.framework != Framework::kTorchrun && !is_kept;
  });
}

// If the job asked, srun leaves a step alone when it sees that tasks share GPUs. Here srun did not see that, and a node
// cannot leave the step alone by itself, because all nodes must do the same.
std::string warn_of_sharing(const StepFacts& facts, const Settings& settings) {
  if (facts.is_one_task || facts.decision.asked != Asked::kWeakly || !is_oversubscribed(facts, settings)) return {};
  const auto& place = facts.layout.place(facts.ranks_here.front());
  return cat({std::to_string(place.local_size), " tasks on ", facts.layout.hosts()[place.node],
              " share fewer GPUs, so their GPU variables stay as Slurm set them; use --bootstrap-gpu-share to share "
              "the GPUs"});
}

std::string settings_record(const StepFacts& facts, const Settings& settings) {
  std::vector<std::string> items;
  if (facts.decision.set_up != SetUp::kAllSettings) items.push_back(write_set_up(facts.decision.set_up));
  if (facts.is_preloaded) items.emplace_back(kSetByPreload);
  if (!facts.slurm.empty()) items.push_back(facts.slurm);
  if (auto changed = write_settings(settings); !changed.empty()) items.push_back(std::move(changed));
  return join(items, " ");
}

// Programs that use device 0, or see no other, must not count GPUs by LOCAL_RANK: each of their tasks passes for a node
// of its own.
void add_alone_ranks(VariableList& variables, const StepFacts& facts, const Place& place) {
  variables.fact("LOCAL_RANK", "0", "each task's own GPU is its device 0");
  variables.fact("LOCAL_WORLD_SIZE", "1", "as if each task had a node of its own");
  variables.by_place("NODE_RANK", place, &Place::rank, "likewise");
  variables.by_place("GROUP_RANK", place, &Place::rank, "likewise");
  variables.fact("GROUP_WORLD_SIZE", std::to_string(facts.layout.size()), "likewise");
}

void add_ranks(VariableList& variables, const StepFacts& facts, const TaskFacts& task) {
  const bool from_mpirun = facts.id.launcher == Launcher::kMpirun;
  const auto& place = facts.layout.place(facts.ranks_here[task.local_task]);
  variables.by_place("RANK", place, &Place::rank, from_mpirun ? "OMPI_COMM_WORLD_RANK" : "SLURM_PROCID");
  variables.fact("WORLD_SIZE", std::to_string(facts.layout.size()),
                 from_mpirun ? "OMPI_COMM_WORLD_SIZE" : "SLURM_STEP_NUM_TASKS");
  if (task.view.is_alone) return add_alone_ranks(variables, facts, place);
  variables.by_place("LOCAL_RANK", place, &Place::local_rank, "place among the tasks of the node");
  variables.by_place("LOCAL_WORLD_SIZE", place, &Place::local_size, "tasks on the node");
  if (!facts.knows_hosts) return;
  variables.by_place("NODE_RANK", place, &Place::node_rank, "nodes in order of their lowest rank");
  variables.by_place("GROUP_RANK", place, &Place::node_rank, "NODE_RANK, as torchrun names it");
  variables.fact("GROUP_WORLD_SIZE", std::to_string(facts.layout.node_count()),
                 from_mpirun ? "all ranks are on this host" : "SLURM_STEP_NUM_NODES");
}

void add_ports(VariableList& variables, const PortPlan& plan, const TaskFacts& task) {
  if (plan.count_of_task == 0) return;
  auto ports = task.ports ? *task.ports : plan.of_tasks[task.local_task];
  if (ports.size() > plan.count_of_task) ports.resize(plan.count_of_task);
  if (!ports.empty()) variables.own(kPortsVariable, join(ports, ","), "on the task's own node", true);
}

// One line for all replaced values, with what to do.
std::string warn_of_unsuitable(const Variables& variables, Launcher launcher) {
  std::vector<std::string> names;
  for (const auto& variable : variables) {
    if (!variable.is_unsuitable) continue;
    names.push_back(cat({variable.name, "=", quote(variable.previous, 20), " (", variable.why, ")"}));
  }
  if (names.empty()) return {};
  const bool from_mpirun = launcher == Launcher::kMpirun;
  const std::string_view start = from_mpirun ? "mpirun" : "srun";
  const std::string_view them = names.size() == 1 ? "it" : "them";
  return cat({"replaced ", join(names, ", "), " from the environment of ", start,
              ", which cannot be right for this step; unset ", them, " before ", start, ", or use ",
              from_mpirun ? "SLURM_BOOTSTRAP=off" : "--bootstrap=off", " to keep ", them});
}

void leave_to_plugins(Variables& variables, const Settings& settings, const TaskFacts& task) {
  for (auto& variable : variables) {
    const bool is_interface = variable.name != kLeftToPlugins[0] && variable.name != kLeftToPlugins[1];
    if (variable.action != Action::kSet || (is_interface && settings.interface.source >= Source::kEnvironment))
      continue;
    for (const auto& [name, value] : task.of_plugins) {
      if (variable.name != name) continue;
      variable.action = Action::kKept;
      variable.previous = value;
      variable.why = "set by another plugin";
    }
  }
}

// If the plugin set up the step, it passes on all settings, also the site's, which a task can read nowhere else.
Result<Settings> read_task_settings(const Environment& environment, bool is_set) {
  if (is_set) return read_settings(environment.get(kSettingsVariable).value_or(""));
  Settings settings;
  const auto applied = apply_environment(settings, environment);
  if (!applied) return fail(applied.error());
  return settings;
}

std::vector<std::string> find_differences(const Environment& environment, const StepPlan& step,
                                          const Variables& variables) {
  std::vector<std::string> differences;
  const ExportRecord ours(environment);
  for (const auto& variable : variables) {
    // A kept value is the user's, and the record of checksums follows from the other variables.
    if (variable.action == Action::kKept || variable.name == kExportsVariable) continue;
    const auto value = environment.get(variable.name);
    if (step.gpus && variable.name == step.gpus->kind().variable) {
      // Only its checksum says what it was, because the plan of a task starts from the list that the task sees.
      if (value && !ours.is_ours(variable.name, *value)) {
        differences.push_back(cat({variable.name, " is ", quote(*value), " in this process, not as it was set"}));
      }
      continue;
    }
    if (value == variable.value) continue;
    differences.push_back(cat({variable.name, value ? cat({" is ", quote(*value)}) : std::string(" is not set"),
                               " in this process, not ", quote(variable.value)}));
  }
  return differences;
}

std::string verdict_of(const StepFacts& facts, const Settings& settings, bool is_set) {
  Decision decision = facts.decision;
  if (is_set) {
    const auto asks = asking_setting(settings);
    decision.reason = facts.is_preloaded                    ? "the preloaded library does it, without the plugin"
                      : decision.set_up == SetUp::kTorchrun ? "torchrun is the program, with one task on each node"
                      : decision.set_up != SetUp::kWorld    ? cat({asks.empty() ? "an option" : asks, " asks for it"})
                      : settings.when.value == When::kWorld
                          ? "a GPU for each task"
                          : cat({"the site sets when=", when_name(settings.when.value)});
    return verdict(decision, hint_of(decision));
  }
  decision.set_up = SetUp::kNothing;
  if (settings.mode.value == Mode::kOff) {
    decision.reason = cat({setting_text(settings, "mode"), " switches it off"});
    return verdict(decision, {});
  }
  if (facts.id.launcher == Launcher::kMpirun) {
    decision.reason = "the plugin does not set up what mpirun starts";
    return verdict(decision, "preload libbootstrap.so to set it up");
  }
  decision.reason = "no plugin set up this step (srun -v says why, if srun --help has --bootstrap)";
  return verdict(decision, "use --bootstrap=on, or without the plugin start slurm-bootstrap run PROGRAM");
}

}  // namespace

std::vector<std::string> inherited_to_unset(const Environment& environment) {
  auto names = ExportRecord(environment).unchanged(environment);
  if (environment.is_there(kLayoutVariable)) names.emplace_back(kLayoutVariable);
  add_messages(names, environment);
  return names;
}

Result<StepPlan> plan_step(const StepFacts& facts, const Settings& settings) {
  auto master = choose_master_endpoint(facts, settings);
  if (!master) return fail(master.error());
  auto gpus = make_node_gpus(facts, settings);
  if (!gpus) return fail(gpus.error());
  StepPlan plan;
  plan.master = std::move(*master);
  plan.gpus = std::move(*gpus);

  VariableList variables(facts, plan.variables);
  add_master(variables, facts, plan.master, settings);
  if (plan.gpus) add_gpu_order(variables, *plan.gpus, facts.id.launcher);
  if (facts.knows_hosts) {
    const auto added = add_frameworks(variables, plan, facts, settings);
    if (!added) return fail(added.error());
  }
  plan_master_port(plan, facts, settings);
  if (facts.decision.set_up == SetUp::kTorchrun) keep_torchruns(plan.variables, facts.meeting.of_node.empty());
  if (auto record = settings_record(facts, settings); !record.empty()) {
    variables.own(kSettingsVariable, std::move(record), "settings that are not the default");
  }
  variables.own(kStepTagVariable, step_tag(facts.id), "job.step.restart: marks our values");
  plan.removals = removals(plan, facts);
  for (auto& warning : {describe_refused(facts.environment), warn_of_master(plan, facts),
                        warn_of_mig(plan, facts.layout, settings), warn_of_sharing(facts, settings)}) {
    if (!warning.empty()) plan.warnings.push_back(warning);
  }
  return plan;
}

TaskFacts assumed_task(const StepPlan& plan, const StepFacts& facts, std::size_t local_task) {
  TaskFacts task{.local_task = local_task, .view = {}, .cores_of_node = facts.cores_of_node, .ports = {}};
  if (facts.cores_of_node != 0) task.cores_asked = facts.environment.number("SLURM_CPUS_PER_TASK").value_or(0);
  if (!plan.gpus) return task;
  task.gpus = &*plan.gpus;
  task.view = view_of(*plan.gpus, facts.layout.place(facts.ranks_here[local_task]).local_rank);
  return task;
}

TaskPlan plan_task(const StepPlan& plan, const StepFacts& facts, const Settings& settings, const TaskFacts& task) {
  TaskPlan planned;
  planned.warnings = plan.warnings;
  VariableList variables(facts, planned.variables);
  const bool has_ranks = facts.decision.set_up != SetUp::kTorchrun;  // torchrun sets the ranks of its workers
  if (has_ranks) add_ranks(variables, facts, task);
  planned.variables.insert(planned.variables.end(), plan.variables.begin(), plan.variables.end());
  if (has_ranks && task.gpus != nullptr) add_gpu_variables(variables, *task.gpus, task.view);
  if (facts.knows_hosts) add_frameworks_of_task(variables, plan, facts, settings, task);
  add_ports(variables, plan.ports, task);
  variables.add_recorded();
  planned.warnings.insert(planned.warnings.end(), plan.node_warnings.begin(), plan.node_warnings.end());
  leave_to_plugins(planned.variables, settings, task);
  add_exports(planned.variables);
  for (auto& warning : {warn_of_unsuitable(planned.variables, facts.id.launcher), task.view.warning}) {
    if (!warning.empty()) planned.warnings.push_back(warning);
  }
  return planned;
}

std::uint32_t thread_count(const TaskFacts& task, std::uint32_t local_size) {
  auto threads = task.cores_asked;
  if (threads == 0 && task.cores_of_node != 0) threads = std::max(1U, task.cores_of_node / std::max(1U, local_size));
  if (task.cores != 0) threads = threads == 0 ? task.cores : std::min(threads, task.cores);
  // A task with several GPUs starts a process or thread for each of them, as torchrun does.
  const auto gpus = static_cast<std::uint32_t>(task.view.group.size());
  return threads == 0 || gpus < 2 ? threads : std::max(1U, threads / gpus);
}

Result<OwnPlan> read_own_plan(const Environment& environment, const MpirunContext& around) {
  auto facts = read_task_facts(environment, around);
  if (!facts) return fail(facts.error());
  const bool is_set = environment.get(kStepTagVariable) == step_tag(facts->id);
  auto settings = read_task_settings(environment, is_set);
  if (!settings) return fail(settings.error());
  if (is_set) {
    const auto record = environment.get(kSettingsVariable).value_or("");
    facts->decision.set_up = read_set_up(record);
    facts->is_preloaded = record.find(kSetByPreload) != std::string_view::npos;
    // torchrun's variables are set in steps that ask, too. Only a world is known to be unasked.
    if (facts->decision.set_up == SetUp::kWorld) facts->decision.asked = Asked::kUnasked;
  }
  auto step = plan_step(*facts, *settings);
  if (!step) return fail(step.error());
  OwnPlan own;
  own.facts = std::move(*facts);
  own.settings = std::move(*settings);
  own.step = std::move(*step);
  own.task = plan_task(own.step, own.facts, own.settings, assumed_task(own.step, own.facts, 0));
  own.verdict = verdict_of(own.facts, own.settings, is_set);
  own.is_set = is_set;
  if (is_set) own.differences = find_differences(environment, own.step, own.task.variables);
  return own;
}

bool has_our_gpu_list(const OwnPlan& own) {
  const auto& environment = own.facts.environment;
  const ExportRecord ours(environment);
  if (!own.step.gpus || ours.step_tag().empty()) return true;
  const std::string name(own.step.gpus->kind().variable);
  const auto list = environment.get(name);
  if (ours.has_set(name)) return !list || ours.is_ours(name, *list);
  // In an unasked world the list stays Slurm's, with one GPU for each task of the node, and is not in the record. If
  // another plugin gave each task a list of its own, no GPU is named.
  const auto& place = own.facts.layout.place(own.facts.ranks_here.front());
  return ours.has_set(kGpuVariable) && own.step.gpus->list.entries.size() >= place.local_size;
}

}  // namespace bootstrap
