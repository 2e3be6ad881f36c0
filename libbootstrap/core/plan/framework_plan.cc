// When a framework's variables are set, and the rules around them: the user's choice, the interface, the ports.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/frameworks.h"

#include <algorithm>
#include <utility>

#include "core/step/planned_variables.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

bool has(const FrameworkFlags& sets, Framework framework) { return sets[static_cast<std::size_t>(framework)]; }

// In a smaller range further_port() would return ports that it has returned already: TensorFlow needs one for each task
// of a node. The same on all nodes. Frameworks that were not named refuse no step. `sets`: the frameworks whose
// variables are set.
Status check_port_range(const StepFacts& facts, const Settings& settings, const FrameworkFlags& sets) {
  constexpr auto kTensorflow = Framework::kTensorflow;
  const auto& range = settings.port_range.value;
  const auto size = std::uint32_t{range.high} - range.low + 1U;
  const bool has_servers = has(sets, kTensorflow) && settings.frameworks.value.asks_for(kTensorflow);
  const auto needed = has_servers ? 1 + facts.layout.most_on_a_node() : 1U;
  if (size >= needed || facts.reserved_ports) return {};
  return fail(
      ErrorCode::kInvalid,
      cat({setting_name(settings, "port_range"), ": ", std::to_string(range.low), "-", std::to_string(range.high),
           " has ", counted(size, "port"), ", but MASTER_PORT and the frameworks of this step need ",
           std::to_string(needed), "; use a range of at least ", std::to_string(needed), " ports"}));
}

constexpr std::string_view kInitFileVariable = "BOOTSTRAP_INIT_FILE";

void add_row(VariableList& variables, const FrameworkVariable& row, const TaskContext& task) {
  auto value = row.value(task);
  if (value.empty()) return;
  const std::string from(row.from);
  if (row.name == kTasksPerNodeVariable) {
    // Slurm's value, not the user's: it is about the job, of which this step may be a part.
    variables.own(row.name, std::move(value), from, false, row.framework);
  } else {
    variables.of_framework(row.framework, row.name, std::move(value), from, row.made_of != DependsOn::kStep);
  }
}

// Each task has a TF_CONFIG with all ranks in it. slurmstepd keeps those of its node, in 1 MiB at most; so a node has
// fewer than 330 workers, and reserves as many ports. All nodes use the limit of the step's largest node.
void add_workers(StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  constexpr std::size_t kMostInVariable = 60000;  // below what Slurm hands on (see Environment::kMaxValue)
  constexpr std::size_t kMostOnNode = std::size_t{1} << 20;
  if (facts.layout.node_count() > 1 && !facts.meeting.of_node.empty()) {
    plan.warnings.emplace_back("TF_CONFIG is not set: it has the names of all nodes, which do not resolve here");
    return;
  }
  const auto most = facts.layout.most_on_a_node();
  const auto room = std::min(kMostInVariable, kMostOnNode / std::max(1U, most));
  plan.workers = worker_list(facts, settings, room);
  if (plan.workers.empty()) {
    plan.warnings.push_back(
        cat({"TF_CONFIG is not set: the list of ", counted(facts.layout.size(), "task"), " would be longer than ",
             std::to_string(room), " bytes, the limit with ", counted(most, "task"), " on a node"}));
    return;
  }
  for (const auto rank : facts.ranks_here) {
    plan.ports.workers.push_back(
        port_to_reserve("TF_CONFIG port", worker_port(facts, settings, rank), facts.layout.host_of(rank)));
  }
}

constexpr std::string_view kGlooInterface = "GLOO_SOCKET_IFNAME";
constexpr std::string_view kNcclInterface = "NCCL_SOCKET_IFNAME";

// Why the user's choice of interfaces leads from this node to no other; empty: it may.
std::string unusable_interfaces(const VariableList& variables, std::string_view name, const StepFacts& facts) {
  if (facts.interfaces.empty() || !variables.set_by_user(name)) return {};
  const auto text = facts.environment.get(name).value_or("");
  const bool is_gloo = name == kGlooInterface;
  const bool is_usable =
      is_gloo ? names_interface_for_gloo(text, facts.interfaces) : names_interface_for_nccl(text, facts.interfaces);
  if (text.empty() || is_usable) return {};
  constexpr std::size_t kMostShown = 8;
  auto shown = facts.interfaces;
  if (shown.size() > kMostShown) shown.resize(kMostShown);
  return cat({is_gloo && text.find_first_of("^=") != std::string_view::npos
                  ? "Gloo takes whole names of interfaces, and to other nodes "
                  : "it is no interface to other nodes: ",
              facts.layout.host_of(facts.ranks_here.front()), " has ", join(shown, ", "),
              shown.size() < facts.interfaces.size() ? " and others" : ""});
}

// The interface for all programs of this node; empty: nothing leads to one, or the site wants none.
Result<std::string> interface_of_node(const StepPlan& plan, const StepFacts& facts, const Settings& settings,
                                      std::string& from) {
  const auto& choice = settings.interface.value;
  if (facts.layout.node_count() == 1 || facts.routes.empty()) return std::string();
  const auto& address = is_kept(plan.variables, "MASTER_ADDR") ? facts.meeting.users : facts.meeting.ours;
  const auto chosen = choose_interface(choice, facts.routes, address, facts.layout.host_of(facts.ranks_here.front()));
  const auto said = setting_text(settings, "interface");
  if (!chosen) return fail(chosen.error().code, cat({said, ": ", chosen.error().message}));
  const bool is_found = choice.kind == InterfaceChoice::Kind::kGloo || choice.kind == InterfaceChoice::Kind::kAuto;
  from = is_found ? cat({"routes to MASTER_ADDR, ", address}) : said;
  return chosen->value_or("");
}

// Only the user's own value of a variable keeps ours away: recipes export NCCL_SOCKET_IFNAME alone.
Status add_interface(VariableList& variables, StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  std::string from;
  const auto chosen = interface_of_node(plan, facts, settings, from);
  const auto name = chosen.value_or("");
  const bool is_for_all = settings.interface.value.kind != InterfaceChoice::Kind::kGloo;
  const auto add = [&](std::string_view variable, std::string value, bool is_wanted) {
    const auto why = unusable_interfaces(variables, variable, facts);
    const bool is_replaced = !why.empty() && !name.empty() && facts.decision.asked != Asked::kUnasked;
    if (!why.empty()) {
      const auto outcome = is_replaced ? cat({" is replaced by ", value, ", because "}) : " stays as you set it, but ";
      plan.node_warnings.push_back(cat({variable, "=", quote(facts.environment.get(variable).value_or(""), 40), outcome,
                                        why, "; unset it before srun, or set it to one"}));
    }
    if (name.empty() || (!is_wanted && !is_replaced)) return;
    variables.common(variable, std::move(value), from);
    if (!is_replaced) return;
    variables.replace_users(why);
    variables.last().is_unsuitable = false;  // the warning above is of each node that it is true of
  };
  add(kGlooInterface, name, true);
  // NCCL takes a bare name for the beginning of one.
  add(kNcclInterface, cat({"=", name}), is_for_all);
  if (!chosen) return fail(chosen.error());
  if (!is_for_all || name.empty()) return {};
  variables.common("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", cat({"=", name}), from);
  const auto port =
      std::find_if(facts.rdma.begin(), facts.rdma.end(), [&](const RdmaPort& one) { return one.interface == name; });
  variables.common("UCX_NET_DEVICES", port == facts.rdma.end() ? name : cat({port->device, ",", name}), from);
  return {};
}

void add_init_file(VariableList& variables, StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  const auto& text = settings.shared_dir.value;
  if (text.empty()) return;
  const auto user = facts.environment.get("USER");
  if (!user && text.find("%u") != std::string::npos) {
    plan.warnings.emplace_back(
        "BOOTSTRAP_INIT_FILE is not set, because USER is not set, which replaces %u in shared_dir=");
    return;
  }
  // Another user who knows the name could make the file first. A task finds the name in its environment.
  const auto salt = facts.decision.salt;
  if (salt == 0) {
    if (!facts.is_one_task || facts.is_preloaded) {
      plan.warnings.emplace_back(
          "BOOTSTRAP_INIT_FILE is not set, because its name needs a random number from the plugin in srun");
    }
    return;
  }
  const auto folder = replaced(text, "%u", user.value_or(""));
  const auto name = cat({"bootstrap-", step_tag(facts.id), "-", to_hex(salt, 16)});
  variables.own(kInitFileVariable, cat({folder, folder.ends_with('/') ? "" : "/", name}),
                "a name in shared_dir= for this step alone");
}

// By name, and for this step: the site's choice applies to steps that ask.
bool is_named(Framework framework, const StepFacts& facts, const Settings& settings) {
  const bool applies =
      facts.decision.set_up == SetUp::kAllSettings || settings.frameworks.source >= Source::kEnvironment;
  return applies && settings.frameworks.value.asks_for(framework);
}

}  // namespace

std::string_view mpi_launch(const Environment& environment) {
  const auto type = environment.get("SLURM_MPI_TYPE");
  if (type) return *type == "none" ? std::string_view() : *type;
  // In a task, or where the type comes from slurm.conf: what the plugins of Slurm hand over.
  if (environment.has("SLURM_PMIX_MAPPING_SERV") || environment.has("PMIX_NAMESPACE")) return "pmix";
  if (environment.has("SLURM_PMI2_SRUN_PORT") || environment.has("PMI_FD")) return "pmi2";
  return {};
}

FrameworkState framework_state(Framework framework, const StepFacts& facts, const Settings& settings) {
  const auto set_up = facts.decision.set_up;
  const auto& set = settings.frameworks.value;
  if (set_up == SetUp::kTorchrun) {
    if (framework == Framework::kTorchrun) return {true, "torchrun is the program"};
    return {false, "torchrun sets up its own ranks"};
  }
  const bool is_asked = is_named(framework, facts, settings);
  if (!set.is_auto && !is_asked) return {false, cat({"frameworks=", write_frameworks(set)})};
  if (framework == Framework::kTorchrun && facts.layout.node_count() != facts.layout.size()) {
    return {false, "torchrun needs one task on each node, and this step has more"};
  }
  if (is_asked) return {true, "asked for"};
  // auto: variables that no other framework reads, or that can only be right. In an unasked step torchrun's are a case
  // of their own, and programs obey a number of threads (GROMACS ends where its own option differs).
  if (framework == Framework::kTensorflow) {
    return {false, "programs that find TF_CONFIG train together, also those that were to run alone"};
  }
  if (set_up == SetUp::kWorld && (framework == Framework::kTorchrun || framework == Framework::kOpenmp)) {
    return {false, "only in steps that ask, as with --bootstrap=on"};
  }
  return {true, "harms no other"};
}

Status add_frameworks(StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  VariableList variables(facts);
  add_init_file(variables, plan, facts, settings);
  auto& sets = plan.frameworks;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    sets[i] = framework_state(static_cast<Framework>(i), facts, settings).is_set;
  }
  auto has_ports = check_port_range(facts, settings, sets);
  if (!has_ports) return has_ports;
  if (has(sets, Framework::kTensorflow)) add_workers(plan, facts, settings);
  const auto any_task = task_context(plan, facts, settings, {.gpus = plan.gpus ? &*plan.gpus : nullptr, .view = {}});
  for (const auto& row : framework_variables()) {
    if (row.made_of == DependsOn::kStep && has(sets, row.framework)) add_row(variables, row, any_task);
  }
  for (auto& added :
       {add_interface(variables, plan, facts, settings), plan_ports_of_tasks(plan.ports, facts, settings)}) {
    if (!added && facts.decision.asked == Asked::kStrongly) return added;
    if (!added) plan.node_warnings.push_back(added.error().message);
  }
  for (auto& variable : std::move(variables).take()) plan.variables.push_back(std::move(variable));
  return {};
}

void add_frameworks_of_task(VariableList& variables, const StepPlan& plan, const StepFacts& facts,
                            const Settings& settings, const TaskFacts& task) {
  const auto context = task_context(plan, facts, settings, task);
  for (const auto& row : framework_variables()) {
    if (row.made_of != DependsOn::kStep && has(plan.frameworks, row.framework)) add_row(variables, row, context);
  }
}

}  // namespace bootstrap
