// The decision of the whole project: facts and settings in, what each task of this node gets out. No I/O.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/step_plan.h"

#include <algorithm>
#include <numeric>

#include "core/failure/failure.h"
#include "core/hardware/network.h"
#include "core/plan/framework_plan.h"
#include "core/plan/gpu_variables.h"
#include "core/plan/variable_precedence.h"
#include "core/settings/known_variables.h"
#include "core/step/rank_layout_text.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// Longer layouts have done their duty in slurmstepd and are not left in the tasks' environment.
constexpr std::size_t kMaxLayoutInTasks = 2048;

// Programs that take device 0, or that are shown no other, must not count GPUs by LOCAL_RANK: to them each task is a
// node of its own.
void add_lonely_ranks(VariableList& variables, const StepFacts& facts) {
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
  if (is_alone) return add_lonely_ranks(variables, facts);
  variables.by_place("LOCAL_RANK", &Place::local_rank, "place among the tasks of the node");
  variables.by_place("LOCAL_WORLD_SIZE", &Place::local_size, "tasks on the node");
  if (!facts.knows_hosts) return;
  variables.by_place("NODE_RANK", &Place::node_rank, "nodes in order of their lowest rank");
  variables.by_place("GROUP_RANK", &Place::node_rank, "NODE_RANK, as torchrun names it");
  variables.fact("GROUP_WORLD_SIZE", std::to_string(facts.layout.node_count()),
                 from_mpirun ? "all ranks are on this host" : "SLURM_STEP_NUM_NODES");
}

// Why the user's MASTER_ADDR cannot be right for a step of several nodes; empty: it can.
std::string unsuitable_master(const StepFacts& facts, std::string_view address) {
  if (facts.layout.node_count() < 2 || address.empty()) return {};
  if (!is_host_name(address)) return "it is not a host name";
  if (is_loopback_name(address)) return "it is a loopback address";
  return {};
}

// Why the ranks may not meet there, unless a server of the user's is there. Any name that is none of the
// step's nodes may be one of another network of rank 0's host.
std::string doubtful_master(const StepFacts& facts, std::string_view address) {
  const auto& layout = facts.layout;
  if (layout.node_count() < 2 || address.empty() || !facts.knows_hosts) return {};
  if (address == facts.decision.unusable_master) return "it does not resolve where srun runs";
  const auto short_name = [](std::string_view name) { return name.substr(0, name.find('.')); };
  const auto& first = layout.host_of(0);
  if (address == first || short_name(address) == short_name(first) || parse_ip_address(address)) return {};
  const auto& hosts = layout.hosts();
  const auto is_named = [&](const std::string& host) {
    return address == host || (address.find('.') != std::string_view::npos && short_name(address) == host);
  };
  return std::any_of(hosts.begin(), hosts.end(), is_named) ? cat({"rank 0 is on ", first}) : std::string();
}

void add_rendezvous(VariableList& variables, const StepFacts& facts, const MasterEndpoint& master,
                    const Settings& settings) {
  const bool port_is_asked = settings.port.source >= Source::kEnvironment && settings.port.value != 0;
  const bool address_is_asked = settings.address.source >= Source::kEnvironment;
  const auto users = facts.environment.get("MASTER_ADDR").value_or("");
  auto why = unsuitable_master(facts, users);
  // Under mpirun on several nodes only the user knows the host of rank 0.
  if (master.address.empty() && (!variables.set_by_user("MASTER_ADDR") || !why.empty())) return;
  variables.common("MASTER_ADDR", master.address, master.address_from, address_is_asked);
  if (why.empty() && facts.decision.asked != Asked::kUnasked) why = doubtful_master(facts, users);
  if (!why.empty()) variables.replace_users(std::move(why));
  variables.common("MASTER_PORT", std::to_string(master.port), master.port_from, port_is_asked);
  if (parse_unsigned(facts.environment.get("MASTER_PORT").value_or(""), 65535).value_or(0) == 0) {
    variables.replace_users("it is no port");
  }
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

// One line for all of them, which says what to do.
std::string warn_of_unsuitable(const StepPlan& plan, Launcher launcher) {
  std::string names;
  std::size_t count = 0;
  for (const auto& variable : plan.variables) {
    if (!variable.is_unsuitable) continue;
    ++count;
    names +=
        cat({names.empty() ? "" : ", ", variable.name, "=", quoted(variable.previous, 20), " (", variable.why, ")"});
  }
  if (names.empty()) return {};
  const bool from_mpirun = launcher == Launcher::kMpirun;
  const std::string_view start = from_mpirun ? "mpirun" : "srun";
  const std::string_view them = count == 1 ? "it" : "them";
  return cat({"replaced ", names, " from the environment of ", start, ", which cannot be right for this step; unset ",
              them, " before ", start, ", or use ", from_mpirun ? "SLURM_BOOTSTRAP=off" : "--bootstrap=off",
              " to keep ", them});
}

// Nobody asked, and a server of the user's may be there: it stays.
std::string warn_of_master(const StepPlan& plan, const StepFacts& facts) {
  if (facts.decision.asked != Asked::kUnasked || !plan.is_kept("MASTER_ADDR")) return {};
  const auto users = facts.environment.get("MASTER_ADDR").value_or("");
  const auto why = doubtful_master(facts, users);
  if (why.empty()) return {};
  return cat({"MASTER_ADDR=", quoted(users, 40), " stays as you set it, but ", why,
              "; if the ranks are to meet there, unset it before srun, or use --bootstrap=on"});
}

std::string warn_of_mig(const StepPlan& plan, const Layout& layout, const Settings& settings) {
  const bool is_asked = settings.gpu.source >= Source::kEnvironment;
  if (!plan.gpus || !plan.gpus->list.has_mig || is_asked || layout.size() == layout.node_count()) return {};
  return "each task has one MIG instance, because CUDA uses no more; NCCL does not connect instances of one GPU, and "
         "makes no direct copies between instances: use Gloo or MPI, or request whole GPUs; --bootstrap-gpu=narrow "
         "turns this warning off";
}

// The port that the tasks will really use, if it is for us to hold: here, at our address, on the node of rank 0.
std::optional<std::uint16_t> port_to_hold(const StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  const auto& ranks = facts.local_ranks;
  if (!plan.find("MASTER_PORT")) return std::nullopt;
  if (!settings.claim.value || std::find(ranks.begin(), ranks.end(), Rank{0}) == ranks.end()) return std::nullopt;
  if (plan.is_kept("MASTER_ADDR")) return std::nullopt;  // the user's server, perhaps served already
  if (!plan.is_kept("MASTER_PORT")) return plan.master.port;
  // To hold it could keep the program from it, which knew the port without us.
  if (facts.decision.asked == Asked::kUnasked) return std::nullopt;
  const auto port = parse_unsigned(plan.variables[*plan.find("MASTER_PORT")].previous, 65535);
  if (!port || *port == 0) return std::nullopt;
  return static_cast<std::uint16_t>(*port);
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
  std::string text;
  const auto add = [&text](std::string_view item) {
    if (!item.empty()) text += cat({text.empty() ? "" : " ", item});
  };
  if (facts.decision.set_up != SetUp::kAllSettings) add(write_set_up(facts.decision.set_up));
  if (facts.is_preloaded) add(kSetByPreload);
  add(write_settings(settings));
  return text;
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
  add_rendezvous(variables, facts, plan.master, settings);
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
  std::vector<std::size_t> tasks(facts.local_ranks.size());
  std::iota(tasks.begin(), tasks.end(), std::size_t{0});
  // Room for what a task finds out: in the forked child to move all of them would be to copy their memory.
  constexpr std::size_t kOfTasks = 4;
  plan.variables.reserve(plan.variables.size() + kOfTasks);
  renew_exports(plan.variables, tasks);
  plan.removals = removals(plan, facts);
  for (auto& warning :
       {describe_refused(facts.environment), warn_of_unsuitable(plan, facts.id.launcher), warn_of_master(plan, facts),
        warn_of_mig(plan, facts.layout, settings), warn_of_sharing(facts, settings)}) {
    if (!warning.empty()) plan.warnings.push_back(warning);
  }
  return plan;
}

}  // namespace bootstrap
