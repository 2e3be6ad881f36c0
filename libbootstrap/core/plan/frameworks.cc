// What each framework reads: the table with each variable, its reader, and how its value follows from the plan; then
// when a framework's variables are set: the user's choice, the interface, the ports.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/frameworks.h"

#include <algorithm>
#include <utility>

#include "core/plan/master_endpoint.h"
#include "core/step/planned_variables.h"
#include "core/util/text.h"

namespace bootstrap {

// One task, as its program sees it.
struct TaskContext {
  const StepPlan& plan;
  const StepFacts& facts;
  const Settings& settings;
  const TaskFacts& known;

  const Place& place() const { return facts.layout.place(facts.ranks_here[known.local_task]); }
};

namespace {

std::string master_addr(const TaskContext& task) { return effective_value(task.plan.variables, "MASTER_ADDR"); }
std::string master_port(const TaskContext& task) { return effective_value(task.plan.variables, "MASTER_PORT"); }

std::string endpoint(const std::string& host, const std::string& port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? cat({"[", host, "]:", port}) : cat({host, ":", port});
}

bool is_all_settings(const TaskContext& task) { return task.facts.decision.set_up == SetUp::kAllSettings; }

std::string node_count(const TaskContext& task) {
  const auto& layout = task.facts.layout;
  return std::to_string(task.known.view.is_alone ? layout.size() : layout.node_count());
}

std::string node_rank(const TaskContext& task) {
  return std::to_string(task.known.view.is_alone ? task.place().rank : task.place().node_rank);
}

std::string gpu_count(const TaskContext& task) {
  const auto count = task.known.view.group.size();
  return count < 2 ? std::string() : std::to_string(count);  // one is torchrun's default
}

// Redirects the output of local rank 9 alone, so of none of up to nine ranks. The default, 0 for all ranks, ends
// torchrun of PyTorch 1.13 on Python 3.11 with "'NoneType' object has no attribute 'get'" (Debian 12 ships this pair).
std::string no_redirects(const TaskContext& task) {
  constexpr std::size_t kMostRanks = 9;
  const auto count = task.known.view.group.size();
  return count > 0 && count <= kMostRanks ? "9:1" : "";
}

std::string own_device_ids(const TaskContext& task) {
  return is_all_settings(task) ? join(task.known.view.group, ",") : std::string();
}

// JAX finds Slurm's ranks by itself. It takes the first host of the step's list for that of rank 0, and a port that
// depends only on the job, not on the step. Never MASTER_PORT: a program may use PyTorch as well.
std::string coordinator_port(const TaskContext& task) {
  const auto n = task.facts.layout.most_on_a_node() + 1;
  auto port = std::to_string(further_port(task.facts, task.settings.port_range.value, n));
  return port == master_port(task) ? std::string() : port;  // a range of a few ports may have no other
}

std::string coordinator_address(const TaskContext& task) {
  const bool is_first = task.facts.first_listed_host == task.facts.layout.host_of(0);
  if (!is_all_settings(task) && is_first && task.facts.meeting.of_node.empty()) return {};
  const auto port = coordinator_port(task);
  return port.empty() ? std::string() : endpoint(master_addr(task), port);
}

// By itself nccl-tests takes the GPU whose number is the local rank.
std::string nccl_tests_device(const TaskContext& task) {
  const auto& group = task.known.view.group;
  if (group.size() != 1 || group.front() == task.place().local_rank) return {};
  return std::to_string(group.front());
}

// Follows the MPI type with which srun starts the tasks. In a task, or if the type comes from slurm.conf, the variables
// of Slurm's MPI plugin show it.
std::string nvshmem_pmi(const TaskContext& task) {
  const auto& environment = task.facts.environment;
  const auto type = environment.get("SLURM_MPI_TYPE");
  const auto is_type = [&](std::string_view name, std::string_view one, std::string_view other) {
    return type ? type->starts_with(name) : environment.has(one) || environment.has(other);
  };
  if (is_type("pmix", "SLURM_PMIX_MAPPING_SERV", "PMIX_NAMESPACE")) return "PMIX";
  return is_type("pmi2", "SLURM_PMI2_SRUN_PORT", "PMI_FD") ? "PMI-2" : "";
}

std::string tasks_per_node(const TaskContext& task) {
  if (task.facts.id.launcher != Launcher::kSlurm) return {};
  const auto& layout = task.facts.layout;
  const auto size = layout.most_on_a_node();
  if (size * layout.node_count() != layout.size()) return {};
  const auto value = std::to_string(size);
  const auto current = task.facts.environment.get(kTasksPerNodeVariable);
  const bool from_slurm = current && !ExportRecord(task.facts.environment).is_ours(kTasksPerNodeVariable, *current);
  return current == value || (from_slurm && !is_all_settings(task)) ? std::string() : value;
}

// {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}
std::string tf_config(const TaskContext& task) {
  if (task.plan.workers.empty()) return {};
  return cat({R"({"cluster": {"worker": [)", task.plan.workers, R"(]}, "task": {"type": "worker", "index": )",
              std::to_string(task.place().rank), "}}"});
}

std::string threads(const TaskContext& task) {
  const auto count = thread_count(task.known, task.place().local_size);
  return count == 0 ? std::string() : std::to_string(count);
}

// Which framework reads which variable. Sources: reference manuals of torchrun (torch/distributed/run.py), JAX
// (_src/distributed.py), TensorFlow (tfconfig_cluster_resolver.py), Lightning (plugins/environments/slurm.py), NVSHMEM
// and nccl-tests (src/common.cu). Accelerate, transformers, DeepSpeed, composer, Ignite and torchcomms need no more
// than what is always set.
using F = Framework;
using T = const TaskContext&;
constexpr FrameworkVariable kTable[] = {
    {F::kTorchrun, "PET_NNODES", "nodes of the step", node_count, DependsOn::kStep},
    {F::kTorchrun, "PET_NODE_RANK", "NODE_RANK", node_rank, DependsOn::kTask},
    {F::kTorchrun, "PET_NPROC_PER_NODE", "GPUs of the task", gpu_count, DependsOn::kTask},
    {F::kTorchrun, "PET_RDZV_BACKEND", "no guess which node is the host", [](T) { return std::string("static"); },
     DependsOn::kStep},
    {F::kTorchrun, "PET_RDZV_ID", "job.step.restart", [](T t) { return step_tag(t.facts.id); }, DependsOn::kStep},
    {F::kTorchrun, "PET_MASTER_ADDR", "MASTER_ADDR", master_addr, DependsOn::kStep},
    {F::kTorchrun, "PET_MASTER_PORT", "MASTER_PORT", master_port, DependsOn::kStep},

    {F::kTorchrun, "PET_REDIRECTS", "none; see the manual", no_redirects, DependsOn::kTask},
    {F::kTorchrun, "PET_TEE", "none, likewise", no_redirects, DependsOn::kTask},

    {F::kTensorflow, "TF_CONFIG", "hosts and ports of all tasks", tf_config, DependsOn::kTask},

    {F::kJax, "JAX_COORDINATOR_PORT", "a port of its own", coordinator_port, DependsOn::kStep},
    {F::kJax, "JAX_COORDINATOR_ADDRESS", "MASTER_ADDR and that port", coordinator_address, DependsOn::kStep},
    {F::kJax, "JAX_LOCAL_DEVICE_IDS", "the task's own GPUs", own_device_ids, DependsOn::kTask},

    {F::kLightning, kTasksPerNodeVariable, "tasks on each node", tasks_per_node, DependsOn::kStep},

    {F::kNvshmem, "NVSHMEM_BOOTSTRAP_PMI", "srun --mpi=", nvshmem_pmi, DependsOn::kStep},
    {F::kNcclTests, "NCCL_TESTS_DEVICE", "BOOTSTRAP_GPU", nccl_tests_device, DependsOn::kTask},

    {F::kOpenmp, "OMP_NUM_THREADS", "cores of the task", threads, DependsOn::kTask},
};

bool is_set(Framework framework, const StepFacts& facts, const Settings& settings) {
  return why_not_set(framework, facts, settings).empty();
}

// In a smaller range further_port() would return ports that it has returned already: TensorFlow needs one for each task
// of a node. The outcome is the same on all nodes. Only frameworks that the user named refuse a step.
Status check_port_range(const StepFacts& facts, const Settings& settings) {
  constexpr auto kTensorflow = Framework::kTensorflow;
  const auto& range = settings.port_range.value;
  const auto size = std::uint32_t{range.high} - range.low + 1U;
  const bool has_servers = settings.frameworks.value.asks_for(kTensorflow) && is_set(kTensorflow, facts, settings);
  const auto needed = has_servers ? 1 + facts.layout.most_on_a_node() : 1U;
  if (size >= needed || facts.reserved_ports) return {};
  return fail(
      ErrorCode::kInvalid,
      cat({setting_name(settings, "port_range"), ": ", std::to_string(range.low), "-", std::to_string(range.high),
           " has ", counted(size, "port"), ", but MASTER_PORT and the frameworks of this step need ",
           std::to_string(needed), "; use a range of at least ", std::to_string(needed), " ports"}));
}

void add_rows(VariableList& variables, const TaskContext& task, DependsOn made_of) {
  for (const auto& row : kTable) {
    if (row.made_of != made_of || !is_set(row.framework, task.facts, task.settings)) continue;
    auto value = row.value(task);
    if (value.empty()) continue;
    const std::string from(row.from);
    if (row.name == kTasksPerNodeVariable) {
      // Slurm's value, not the user's: it is about the job, of which this step may be a part.
      variables.own(row.name, std::move(value), from, false, row.framework);
    } else {
      variables.of_framework(row.framework, row.name, std::move(value), from, made_of == DependsOn::kTask);
    }
  }
}

// Where a rank's TensorFlow server listens, on its own node.
std::uint16_t worker_port(const StepFacts& facts, const Settings& settings, Rank rank) {
  return further_port(facts, settings.port_range.value, facts.layout.place(rank).local_rank + 1);
}

// The TensorFlow servers of all ranks, in order: "host:port", each in quotes. Empty: they need more than `room` bytes.
std::string worker_list(const StepFacts& facts, const Settings& settings, std::size_t room) {
  const auto& layout = facts.layout;
  std::string workers;
  for (Rank rank = 0; rank < layout.size() && workers.size() <= room; ++rank) {
    const auto host = fabric_name(settings, layout.host_of(rank), facts.meeting);
    const auto port = std::to_string(worker_port(facts, settings, rank));
    workers += cat({rank == 0 ? "" : ", ", json_string(endpoint(host, port))});
  }
  return workers.size() <= room ? workers : std::string();
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

// Why the user's interfaces lead from this node to no other node; empty: they may.
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

// The interface for all programs of this node; empty: none is found or wanted.
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

// A user's value keeps away only ours of the same variable: recipes export NCCL_SOCKET_IFNAME alone.
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
                                        why, "; unset it before srun, or set it to one of these"}));
    }
    if (name.empty() || (!is_wanted && !is_replaced)) return;
    variables.common(variable, std::move(value), from);
    if (!is_replaced) return;
    variables.replace_users(why);
    variables.last().is_unsuitable = false;  // the warning above says it, on each such node
  };
  add(kGlooInterface, name, true);
  // Without "=" NCCL takes a name for the beginning of one.
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
        "BOOTSTRAP_INIT_FILE is not set, because %u in shared_dir= needs USER, which is not set");
    return;
  }
  // Another user who knows the name could create the file first. A task finds the name in its environment.
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
  variables.own("BOOTSTRAP_INIT_FILE", cat({folder, folder.ends_with('/') ? "" : "/", name}),
                "a name in shared_dir= for this step alone");
}

}  // namespace

std::span<const FrameworkVariable> framework_variables() { return kTable; }

std::string why_not_set(Framework framework, const StepFacts& facts, const Settings& settings) {
  const auto set_up = facts.decision.set_up;
  const auto& set = settings.frameworks.value;
  if (set_up == SetUp::kTorchrun) return framework == Framework::kTorchrun ? "" : "torchrun sets up its own ranks";
  // By name. The site's choice applies to steps that ask.
  const bool applies = set_up == SetUp::kAllSettings || settings.frameworks.source >= Source::kEnvironment;
  const bool is_asked = applies && set.asks_for(framework);
  if (!set.is_auto && !is_asked) return cat({"frameworks=", write_frameworks(set)});
  if (framework == Framework::kTorchrun && facts.layout.node_count() != facts.layout.size()) {
    return "torchrun needs one task on each node, and this step has more";
  }
  if (is_asked) return {};
  // auto: variables that no other framework reads, or that are right for all programs. An unasked step gets neither
  // torchrun's nor a number of threads, because programs obey that number (GROMACS ends if its own option differs).
  if (framework == Framework::kTensorflow) {
    return "programs that find TF_CONFIG train together, even if each should run alone";
  }
  if (set_up == SetUp::kWorld && (framework == Framework::kTorchrun || framework == Framework::kOpenmp)) {
    return "only in steps that ask, as with --bootstrap=on";
  }
  return {};
}

Status add_frameworks(VariableList& variables, StepPlan& plan, const StepFacts& facts, const Settings& settings) {
  add_init_file(variables, plan, facts, settings);
  auto has_ports = check_port_range(facts, settings);
  if (!has_ports) return has_ports;
  if (is_set(Framework::kTensorflow, facts, settings)) add_workers(plan, facts, settings);
  add_rows(variables, {plan, facts, settings, assumed_task(plan, facts, 0)}, DependsOn::kStep);
  for (auto& added :
       {add_interface(variables, plan, facts, settings), plan_ports_of_tasks(plan.ports, facts, settings)}) {
    if (!added && facts.decision.asked == Asked::kStrongly) return added;
    if (!added) plan.node_warnings.push_back(added.error().message);
  }
  return {};
}

void add_frameworks_of_task(VariableList& variables, const StepPlan& plan, const StepFacts& facts,
                            const Settings& settings, const TaskFacts& task) {
  add_rows(variables, {plan, facts, settings, task}, DependsOn::kTask);
}

}  // namespace bootstrap
