// The decision of the whole project: facts and settings in, what each task of this node gets out. No I/O.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/step_plan.h"

#include <algorithm>

#include "core/plan/frameworks.h"
#include "core/plan/node_gpus.h"
#include "core/settings/variables.h"
#include "core/step/planned_variables.h"
#include "core/step/srun_messages.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// Longer layouts are used in slurmstepd alone, and removed from the tasks' environment.
constexpr std::size_t kMaxLayoutInTasks = 2048;

// Programs that use device 0, or see no other, must not count GPUs by LOCAL_RANK: each of their tasks passes for a node
// of its own.
void add_alone_ranks(VariableList& variables, const StepFacts& facts) {
  const auto alone = alone_place({}, static_cast<std::uint32_t>(facts.layout.size()));
  for (const auto& [name, part, from] : kAloneVariables) {
    if (part == &Place::rank) variables.by_place(name, part, std::string(from));
    if (part != &Place::rank) variables.fact(name, std::to_string(alone.*part), std::string(from));
  }
}

void add_ranks(VariableList& variables, const StepFacts& facts, bool is_alone) {
  const bool from_mpirun = facts.id.launcher == Launcher::kMpirun;
  variables.by_place("RANK", &Place::rank, from_mpirun ? "OMPI_COMM_WORLD_RANK" : "SLURM_PROCID");
  variables.fact("WORLD_SIZE", std::to_string(facts.layout.size()),
                 from_mpirun ? "OMPI_COMM_WORLD_SIZE" : "SLURM_STEP_NUM_TASKS");
  if (is_alone) return add_alone_ranks(variables, facts);
  variables.by_place("LOCAL_RANK", &Place::local_rank, "place among the tasks of the node");
  variables.by_place("LOCAL_WORLD_SIZE", &Place::local_size, "tasks on the node");
  if (!facts.knows_hosts) return;
  variables.by_place("NODE_RANK", &Place::node_rank, "nodes in order of their lowest rank");
  variables.by_place("GROUP_RANK", &Place::node_rank, "NODE_RANK, as torchrun names it");
  variables.fact("GROUP_WORLD_SIZE", std::to_string(facts.layout.node_count()),
                 from_mpirun ? "all ranks are on this host" : "SLURM_STEP_NUM_NODES");
}

void add_gpus(VariableList& variables, const NodeGpus& plan, const StepFacts& facts) {
  const bool has_order = !plan.kind().order_variable.empty() && !(plan.is_untouched && plan.list.has_uuids);
  if (has_order) {
    // CUDA's own default is fastest first, which is neither Slurm's order nor the same on every node.
    variables.common(plan.kind().order_variable, "PCI_BUS_ID",
                     facts.id.launcher == Launcher::kMpirun ? "so that all nodes count GPUs alike"
                                                            : "Slurm counts GPUs in this order");
  }
  for (auto& variable : gpu_variables(plan, facts)) variables.own(std::move(variable));
}

// One line for all of them, with what to do.
std::string warn_of_unsuitable(const StepPlan& plan, Launcher launcher) {
  std::vector<std::string> names;
  for (const auto& variable : plan.variables) {
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

std::string warn_of_mig(const StepPlan& plan, const Layout& layout, const Settings& settings) {
  const bool is_asked = settings.gpu.source >= Source::kEnvironment;
  if (!plan.gpus || !plan.gpus->list.has_mig || is_asked || layout.size() == layout.node_count()) return {};
  return "each task has one MIG instance, because CUDA uses no more; NCCL does not connect instances of one GPU, and "
         "makes no direct copies between instances: use Gloo or MPI, or request whole GPUs; --bootstrap-gpu=narrow "
         "turns this warning off";
}

void add_messages(std::vector<std::string>& names, const Environment& environment) {
  if (environment.get(kExportVariable) == kExportValue) names.emplace_back(kExportVariable);
  for (const auto name : kMessages) {
    if (environment.is_there(name)) names.emplace_back(name);
  }
}

// What is left of an outer step and not set anew for this one.
std::vector<std::string> removals(const StepPlan& plan, const StepFacts& facts) {
  std::vector<std::string> names;
  for (auto& name : ExportRecord(facts.environment).unchanged(facts.environment)) {
    if (!plan.find(name)) names.push_back(std::move(name));
  }
  const auto layout = facts.environment.get(kLayoutVariable);
  const bool is_useless =
      !layout || layout->size() > kMaxLayoutInTasks || facts.layout_source != LayoutSource::kStepLayout;
  if (is_useless && facts.environment.is_there(kLayoutVariable)) names.emplace_back(kLayoutVariable);
  add_messages(names, facts.environment);
  return names;
}

}  // namespace

std::optional<std::size_t> StepPlan::find(std::string_view name) const {
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (variables[i].name == name) return i;
  }
  return std::nullopt;
}

bool StepPlan::is_kept(std::string_view name) const {
  const auto at = find(name);
  return at && variables[*at].action == Action::kKept;
}

std::string effective_value(const StepPlan& plan, std::string_view name) {
  const auto at = plan.find(name);
  return at ? plan.variables[*at].effective() : std::string();
}

std::vector<std::string> inherited_to_unset(const Environment& environment) {
  auto names = ExportRecord(environment).unchanged(environment);
  if (environment.is_there(kLayoutVariable)) names.emplace_back(kLayoutVariable);
  add_messages(names, environment);
  return names;
}

namespace {

// What torchrun reads, and nothing else: its workers get the rest from torchrun.
void keep_torchruns(StepPlan& plan) {
  std::erase_if(plan.variables,
                [](const PlannedVariable& variable) { return variable.framework != Framework::kTorchrun; });
}

// srun leaves such a step of a job that asked alone where it can see it; here it could not, and no node may do
// otherwise than the others.
std::string warn_of_sharing(const StepFacts& facts, const Settings& settings) {
  if (facts.is_one_task || facts.decision.asked != Asked::kWeakly || !is_oversubscribed(facts, settings)) return {};
  const auto& place = facts.layout.place(facts.local_ranks.front());
  return cat({std::to_string(place.local_size), " tasks on ", facts.layout.hosts()[place.node],
              " share fewer GPUs, so their GPU variables stay as Slurm set them; use --bootstrap-gpu-share to share "
              "the GPUs"});
}

std::string settings_record(const StepFacts& facts, const Settings& settings) {
  std::vector<std::string> items;
  if (facts.decision.set_up != SetUp::kAllSettings) items.push_back(write_set_up(facts.decision.set_up));
  if (facts.is_preloaded) items.emplace_back(kSetByPreload);
  if (auto changed = write_settings(settings); !changed.empty()) items.push_back(std::move(changed));
  return join(items, " ");
}

}  // namespace

Result<StepPlan> make_step_plan(const StepFacts& facts, const Settings& settings) {
  auto master = choose_master_endpoint(facts, settings);
  if (!master) return fail(master.error());
  auto gpus = make_node_gpus(facts, settings);
  if (!gpus) return fail(gpus.error());
  StepPlan plan;
  plan.master = std::move(*master);
  plan.gpus = std::move(*gpus);

  VariableList variables(facts);
  add_ranks(variables, facts, plan.gpus && plan.gpus->mode != GpuMode::kIndex);
  add_master(variables, facts, plan.master, settings);
  if (plan.gpus) add_gpus(variables, *plan.gpus, facts);
  plan.variables = std::move(variables).take();
  if (facts.knows_hosts) {
    const auto added = add_frameworks(plan, facts, settings);
    if (!added) return fail(added.error());
  }
  plan.port_to_reserve = port_to_hold(plan, facts, settings);
  plan.port_is_users = plan.is_kept("MASTER_PORT");
  if (facts.decision.set_up == SetUp::kTorchrun) keep_torchruns(plan);

  VariableList marks(facts);
  const auto record = settings_record(facts, settings);
  if (!record.empty()) marks.own(kSettingsVariable, record, "settings that are not the default");
  marks.own(kStepTagVariable, step_tag(facts.id), "job.step.restart: marks our values");
  for (auto& variable : std::move(marks).take()) plan.variables.push_back(std::move(variable));
  // Room for what a task finds out: in the forked child to move all of them would be to copy their memory.
  constexpr std::size_t kOfTasks = 4;
  plan.variables.reserve(plan.variables.size() + kOfTasks);
  renew_exports(plan.variables, 0, facts.local_ranks.size());
  plan.removals = removals(plan, facts);
  for (auto& warning :
       {describe_refused(facts.environment), warn_of_unsuitable(plan, facts.id.launcher), warn_of_master(plan, facts),
        warn_of_mig(plan, facts.layout, settings), warn_of_sharing(facts, settings)}) {
    if (!warning.empty()) plan.warnings.push_back(warning);
  }
  return plan;
}

}  // namespace bootstrap
