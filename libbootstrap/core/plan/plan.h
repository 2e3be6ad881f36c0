// The plan: from the facts of a step and its settings to what its tasks on this node get, and to all variables of one
// task. A task reads its own plan from its environment. No I/O.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/master_endpoint.h"
#include "core/plan/node_gpus.h"
#include "core/settings/settings.h"
#include "core/step/planned_variables.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

// Never changed once it is made.
struct StepPlan {
  Variables variables;                // the same for all tasks
  std::vector<std::string> removals;  // leftovers and internal variables that the tasks must not see
  MasterEndpoint master;
  PortPlan ports;
  std::string workers;                     // of all ranks, for TF_CONFIG; empty: it is not set
  std::optional<NodeGpus> gpus;            // nullopt: the plan gives the tasks no GPUs of their own
  std::vector<std::string> warnings;       // one sentence each, for the user: true on all nodes
  std::vector<std::string> node_warnings;  // likewise, about this node alone
};

// For a step that is not set up: the variables to remove, so that its environment is as without the plugin.
std::vector<std::string> inherited_to_unset(const Environment& environment);

Result<StepPlan> plan_step(const StepFacts& facts, const Settings& settings);

// What is known of a task when it starts.
struct TaskFacts {
  std::size_t local_task = 0;       // its place in StepFacts::ranks_here
  const NodeGpus* gpus = nullptr;   // the plan's, or a copy with another order; null: the plan gives it none
  GpuView view = {};                // what it sees of them; empty without them
  std::uint32_t cores = 0;          // that it may run on; 0: not known
  std::uint32_t cores_of_node = 0;  // that the job has on the node; 0: not known
  std::uint32_t cores_asked = 0;    // --cpus-per-task; 0: not given
  // Reserved for the task. nullopt: none is reserved, and it gets the first ports that it may have.
  std::optional<std::vector<std::uint16_t>> ports = {};
  std::vector<std::pair<std::string, std::string>> of_plugins = {};  // those of kLeftToPlugins that are set by now
};

// Another plugin may choose these for a task: one that binds cores has better thread counts, and one that starts
// containers better interfaces, unless the user named an interface.
inline constexpr std::array<std::string_view, 6> kLeftToPlugins{
    "OMP_NUM_THREADS",    "CUDA_DEVICE_ORDER", "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME", "UCX_NET_DEVICES",   "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME"};

// For a task that has not started: assumes that no GPU is hidden from it, and that it has its share of the cores.
TaskFacts assumed_task(const StepPlan& plan, const StepFacts& facts, std::size_t local_task);

struct TaskPlan {
  Variables variables;                // all of the task, including those of the step
  std::vector<std::string> warnings;  // one sentence each, for the user: those of the step and of this task
};

// True for the tasks that print the warnings of their node, which rank 0 does not know. More than eight nodes would
// fill the screen.
inline bool prints_node_warnings(const Place& place) { return place.local_rank == 0 && place.node_rank < 8; }

TaskPlan plan_task(const StepPlan& plan, const StepFacts& facts, const Settings& settings, const TaskFacts& task);

// The number of threads for a task's share of the cores; 0: not known.
std::uint32_t thread_count(const TaskFacts& task, std::uint32_t local_size);

// The plan as a task itself sees it, from nothing but its environment: for the library and the command.
struct OwnPlan {
  StepFacts facts;
  Settings settings;
  StepPlan step;
  TaskPlan task;
  std::string verdict;                   // "SET UP: ..." or "NOT SET UP: ...", for people
  bool is_set = false;                   // the plugin set these variables in this very step
  std::vector<std::string> differences;  // variables that differ from the plan, for people
};

Result<OwnPlan> read_own_plan(const Environment& environment, const MpirunContext& around = {});

// True if the list of GPUs is still the one in which BOOTSTRAP_GPU counts. BOOTSTRAP_GPU means nothing in a list that
// the program has made itself.
bool has_our_gpu_list(const OwnPlan& own);

}  // namespace bootstrap
