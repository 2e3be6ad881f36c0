// First half of the plan: facts of a step and settings in, what all its tasks on this node get out. No I/O.
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

// Leftovers go also where this step sets them anew: until then no task has the outer step's.
std::vector<std::string> removals(const StepPlan& plan, const StepFacts& facts) {
  const auto& environment = facts.environment;
  const ExportRecord record(environment);
  const bool is_own = record.step_tag() == step_tag(facts.id);  // a task that is set up reads its plan
  std::vector<std::string> names;
  if (!is_own) names = record.unchanged(environment);
  const auto layout = environment.get(kLayoutVariable);
  const bool is_useless =
      !layout || layout->size() > kMaxLayoutInTasks || facts.layout_source != LayoutSource::kStepLayout;
  if (is_useless && environment.is_there(kLayoutVariable)) names.emplace_back(kLayoutVariable);
  // Always ours, and not set where too few ports are free.
  if (!is_own && plan.ports.count_of_task > 0 && environment.is_there(kPortsVariable))
    names.emplace_back(kPortsVariable);
  add_messages(names, environment);
  return names;
}

}  // namespace

const PlannedVariable* find_variable(const Variables& variables, std::string_view name) {
  const auto at = std::find_if(variables.begin(), variables.end(), [&](const auto& one) { return one.name == name; });
  return at == variables.end() ? nullptr : &*at;
}

bool is_kept(const Variables& variables, std::string_view name) {
  const auto* const variable = find_variable(variables, name);
  return variable != nullptr && variable->action == Action::kKept;
}

std::string effective_value(const Variables& variables, std::string_view name) {
  const auto* const variable = find_variable(variables, name);
  return variable == nullptr ? std::string() : variable->effective();
}

std::vector<std::string> inherited_to_unset(const Environment& environment) {
  auto names = ExportRecord(environment).unchanged(environment);
  if (environment.is_there(kLayoutVariable)) names.emplace_back(kLayoutVariable);
  add_messages(names, environment);
  return names;
}

namespace {

// What torchrun reads, and nothing else: its workers get the rest from torchrun. Gloo looks up the name of the own
// host: where names do not resolve, its workers would meet on 127.0.0.1.
void keep_torchruns(Variables& variables, bool has_names) {
  std::erase_if(variables, [=](const PlannedVariable& variable) {
    const bool is_kept = variable.name == "GLOO_SOCKET_IFNAME" && (!has_names || variable.action == Action::kReplaced);
    return variable.framework != Framework::kTorchrun && !is_kept;
  });
}

// Of a job that asked, srun leaves a step alone where it sees that tasks share GPUs. Here it did not see that, and all
// nodes must do the same.
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

void append(Variables& variables, VariableList list) {
  for (auto& variable : std::move(list).take()) variables.push_back(std::move(variable));
}

}  // namespace

Result<StepPlan> plan_step(const StepFacts& facts, const Settings& settings) {
  auto master = choose_master_endpoint(facts, settings);
  if (!master) return fail(master.error());
  auto gpus = make_node_gpus(facts, settings);
  if (!gpus) return fail(gpus.error());
  StepPlan plan;
  plan.master = std::move(*master);
  plan.gpus = std::move(*gpus);

  VariableList variables(facts);
  add_master(variables, facts, plan.master, settings);
  if (plan.gpus) add_gpu_order(variables, *plan.gpus, facts.id.launcher);
  append(plan.variables, std::move(variables));
  if (facts.knows_hosts) {
    const auto added = add_frameworks(plan, facts, settings);
    if (!added) return fail(added.error());
  }
  plan_master_port(plan, facts, settings);
  if (facts.decision.set_up == SetUp::kTorchrun) keep_torchruns(plan.variables, facts.meeting.of_node.empty());
  VariableList marks(facts);
  if (auto record = settings_record(facts, settings); !record.empty()) {
    marks.own(kSettingsVariable, std::move(record), "settings that are not the default");
  }
  marks.own(kStepTagVariable, step_tag(facts.id), "job.step.restart: marks our values");
  append(plan.variables, std::move(marks));
  plan.removals = removals(plan, facts);
  for (auto& warning : {describe_refused(facts.environment), warn_of_master(plan, facts),
                        warn_of_mig(plan, facts.layout, settings), warn_of_sharing(facts, settings)}) {
    if (!warning.empty()) plan.warnings.push_back(warning);
  }
  return plan;
}

}  // namespace bootstrap
