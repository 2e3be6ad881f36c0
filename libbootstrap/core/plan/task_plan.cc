// Second half of the plan: the plan of the step and what one task sees in, all variables of that task out. No I/O.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/task_plan.h"

#include <algorithm>

#include "core/plan/frameworks.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// The variables of a task that passes for a node of its own: name, part of alone_place(), and origin.
struct AloneVariable {
  std::string_view name;
  std::uint32_t Place::*part;
  std::string_view from;
};
constexpr std::array<AloneVariable, 5> kAloneVariables{{
    {"LOCAL_RANK", &Place::local_rank, "each task's own GPU is its device 0"},
    {"LOCAL_WORLD_SIZE", &Place::local_size, "as if each task had a node of its own"},
    {"NODE_RANK", &Place::rank, "likewise"},
    {"GROUP_RANK", &Place::rank, "likewise"},
    {"GROUP_WORLD_SIZE", &Place::cross_size, "likewise"},
}};

// Programs that use device 0, or see no other, must not count GPUs by LOCAL_RANK: each of their tasks passes for a node
// of its own.
void add_alone_ranks(VariableList& variables, const StepFacts& facts, const Place& place) {
  const auto alone = alone_place(place, static_cast<std::uint32_t>(facts.layout.size()));
  for (const auto& [name, part, from] : kAloneVariables) {
    if (part == &Place::rank) variables.by_place(name, place, part, std::string(from));
    if (part != &Place::rank) variables.fact(name, std::to_string(alone.*part), std::string(from));
  }
}

void add_ranks(VariableList& variables, const StepFacts& facts, const TaskFacts& task) {
  const bool from_mpirun = facts.id.launcher == Launcher::kMpirun;
  const auto& place = facts.layout.place(facts.ranks_here[task.local_task]);
  variables.by_place("RANK", place, &Place::rank, from_mpirun ? "OMPI_COMM_WORLD_RANK" : "SLURM_PROCID");
  variables.fact("WORLD_SIZE", std::to_string(facts.layout.size()),
                 from_mpirun ? "OMPI_COMM_WORLD_SIZE" : "SLURM_STEP_NUM_TASKS");
  if (is_alone_on_its_node(task)) return add_alone_ranks(variables, facts, place);
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

// One line for all of them, with what to do.
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

}  // namespace

bool is_alone_on_its_node(const TaskFacts& task) {
  return task.gpus != nullptr && (task.view.is_alone || task.gpus->mode != GpuMode::kIndex);
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
  VariableList variables(facts);
  const bool has_ranks = facts.decision.set_up != SetUp::kTorchrun;  // torchrun sets those of its workers
  if (has_ranks) add_ranks(variables, facts, task);
  for (const auto& variable : plan.variables) variables.copy(variable);
  if (has_ranks && task.gpus != nullptr) add_gpu_variables(variables, *task.gpus, task.view);
  if (facts.knows_hosts) add_frameworks_of_task(variables, plan, facts, settings, task);
  add_ports(variables, plan.ports, task);
  variables.add_recorded();
  TaskPlan planned{std::move(variables).take(), plan.warnings};
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
  const auto gpus = task.gpus == nullptr ? 0U : static_cast<std::uint32_t>(task.view.group.size());
  return threads == 0 || gpus < 2 ? threads : std::max(1U, threads / gpus);
}

}  // namespace bootstrap
