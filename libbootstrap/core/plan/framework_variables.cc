// The table of what frameworks read: each variable, who reads it, and how its value follows from the plan.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/frameworks.h"

#include "core/plan/master_endpoint.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string number(std::uint32_t value) { return std::to_string(value); }

std::string master_addr(const TaskContext& task) { return effective_value(task.plan.variables, "MASTER_ADDR"); }
std::string master_port(const TaskContext& task) { return effective_value(task.plan.variables, "MASTER_PORT"); }

std::string endpoint(const std::string& host, const std::string& port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? cat({"[", host, "]:", port}) : cat({host, ":", port});
}

bool is_all_settings(const TaskContext& task) { return task.facts.decision.set_up == SetUp::kAllSettings; }

std::string gpu_count(const TaskContext& task) {
  if (task.gpus == nullptr || task.gpus->group.size() < 2) return {};  // one is torchrun's default
  return std::to_string(task.gpus->group.size());
}

// Redirect the output of local rank 9 alone, that is, none of up to nine: the default, 0, for all, ends torchrun of
// PyTorch 1.13 on Python 3.11 with "'NoneType' object has no attribute 'get'" (Debian 12 ships this pair).
std::string no_redirects(const TaskContext& task) {
  constexpr std::size_t kMostRanks = 9;
  return task.gpus != nullptr && task.gpus->group.size() <= kMostRanks ? "9:1" : "";
}

std::string own_device_ids(const TaskContext& task) {
  if (task.gpus == nullptr || !is_all_settings(task)) return {};
  return task.gpus->group.empty() ? number(task.gpus->own) : join(task.gpus->group, ",");
}

// JAX finds Slurm's ranks by itself. It takes the first host of the step's list for that of rank 0, and a port that
// goes by the job alone, on which two steps of a job meet. Never MASTER_PORT: a program may use PyTorch as well.
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

// By itself nccl-tests takes the GPU with the number of the task among those of its node.
std::string nccl_tests_device(const TaskContext& task) {
  const auto local_rank = task.facts.layout.place(task.rank).local_rank;
  if (task.gpus == nullptr || task.gpus->group.size() > 1 || task.gpus->own == local_rank) return {};
  return number(task.gpus->own);
}

std::string nvshmem_pmi(const TaskContext& task) {
  const auto mpi = mpi_launch(task.facts.environment);
  if (mpi.starts_with("pmix")) return "PMIX";
  return mpi == "pmi2" ? "PMI-2" : "";
}

std::string tasks_per_node(const TaskContext& task) {
  if (task.facts.id.launcher != Launcher::kSlurm) return {};
  const auto& layout = task.facts.layout;
  const auto size = layout.most_on_a_node();
  if (size * layout.node_count() != layout.size()) return {};
  const auto value = number(size);
  const auto current = task.facts.environment.get(kTasksPerNodeVariable);
  const bool from_slurm = current && !ExportRecord(task.facts.environment).is_ours(kTasksPerNodeVariable, *current);
  if (from_slurm && !is_all_settings(task)) return {};
  return task.facts.environment.get(kTasksPerNodeVariable) == value ? std::string() : value;
}

// {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}
std::string tf_config(const TaskContext& task) {
  if (task.plan.workers.empty()) return {};
  return cat({R"({"cluster": {"worker": [)", task.plan.workers, R"(]}, "task": {"type": "worker", "index": )",
              number(task.rank), "}}"});
}

// What reads which, with the sources: reference manuals of torchrun (torch/distributed/run.py), JAX
// (_src/distributed.py), TensorFlow (tfconfig_cluster_resolver.py), Lightning (plugins/environments/slurm.py),
// NVSHMEM and nccl-tests (src/common.cu). Accelerate, transformers, DeepSpeed, composer, Ignite and torchcomms need no
// more than what is always set.
using F = Framework;
using T = const TaskContext&;
constexpr FrameworkVariable kTable[] = {
    {F::kTorchrun, "PET_NNODES", "nodes of the step", [](T t) { return number(t.node_count); }, DependsOn::kStep},
    {F::kTorchrun, "PET_NODE_RANK", "NODE_RANK", [](T t) { return number(t.place.node_rank); }, DependsOn::kTask},
    {F::kTorchrun, "PET_NPROC_PER_NODE", "GPUs of the task", gpu_count, DependsOn::kTask},
    {F::kTorchrun, "PET_RDZV_BACKEND", "no guess who is the host", [](T) { return std::string("static"); },
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

    {F::kOpenmp, "OMP_NUM_THREADS", "cores of the task",
     [](T t) { return t.threads == 0 ? std::string() : number(t.threads); }, DependsOn::kCores},
};

}  // namespace

TaskContext task_context(const StepPlan& plan, const StepFacts& facts, const Settings& settings,
                         const TaskFacts& task) {
  const auto rank = facts.ranks_here[task.local_task];
  const auto& place = facts.layout.place(rank);
  const auto size = static_cast<std::uint32_t>(facts.layout.size());
  const auto nodes = static_cast<std::uint32_t>(facts.layout.node_count());
  const bool is_alone = is_alone_on_its_node(task);
  return {plan,
          facts,
          settings,
          rank,
          is_alone ? alone_place(place, size) : place,
          is_alone ? size : nodes,
          is_alone,
          task.gpus == nullptr ? nullptr : &task.view,
          thread_count(task, place.local_size)};
}

std::span<const FrameworkVariable> framework_variables() { return kTable; }

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

std::uint16_t worker_port(const StepFacts& facts, const Settings& settings, Rank rank) {
  return further_port(facts, settings.port_range.value, facts.layout.place(rank).local_rank + 1);
}

}  // namespace bootstrap
