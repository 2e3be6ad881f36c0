// The plan: facts of a step and settings in; what all its tasks on this node get, and all variables of one task, out. A
// task reads its own plan from its environment. No I/O.
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
  std::vector<std::string> removals;  // leftovers and messengers that the tasks must not see
  MasterEndpoint master;
  PortPlan ports;
  std::string workers;                     // of all ranks, for TF_CONFIG; empty: it is not set
  std::optional<NodeGpus> gpus;            // set where the tasks' GPUs are ours to deal out
  std::vector<std::string> warnings;       // one sentence each, for the user: true of all nodes
  std::vector<std::string> node_warnings;  // likewise, of this node: other nodes may have none
};

// For a step in which nothing is set: what must go so that it sees its environment as it would be without us.
std::vector<std::string> inherited_to_unset(const Environment& environment);

Result<StepPlan> plan_step(const StepFacts& facts, const Settings& settings);

// What is known of a task when it starts.
struct TaskFacts {
  std::size_t local_task = 0;       // its place in StepFacts::ranks_here
  const NodeGpus* gpus = nullptr;   // the plan's, or a copy with another order; null: none are dealt out to it
  GpuView view = {};                // what it sees of them; empty without them
  std::uint32_t cores = 0;          // that it may run on; 0: not known
  std::uint32_t cores_of_node = 0;  // that the job has on the node; 0: not known
  std::uint32_t cores_asked = 0;    // --cpus-per-task; 0: not given
  // Reserved for it; nothing: not yet, and the first that it may have.
  std::optional<std::vector<std::uint16_t>> ports = {};
  std::vector<std::pair<std::string, std::string>> of_plugins = {};  // of kLeftToPlugins, what is set by now
};

// Another plugin may choose these for a task: one that binds cores has better thread counts, and one that starts
// containers better interfaces, unless the user named an interface.
inline constexpr std::array<std::string_view, 6> kLeftToPlugins{
    "OMP_NUM_THREADS",    "CUDA_DEVICE_ORDER", "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME", "UCX_NET_DEVICES",   "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME"};

// As far as that can be known before a task starts: nothing is hidden from it, and it has its share of the cores.
TaskFacts assumed_task(const StepPlan& plan, const StepFacts& facts, std::size_t local_task);

struct TaskPlan {
  Variables variables;                // all of them, those of the step among them
  std::vector<std::string> warnings;  // one sentence each, for the user: those of the step and of this task
};

// True of the tasks that print the warnings of their node, which rank 0 does not know. Those of more nodes would fill
// the screen.
inline bool prints_node_warnings(const Place& place) { return place.local_rank == 0 && place.node_rank < 8; }

TaskPlan plan_task(const StepPlan& plan, const StepFacts& facts, const Settings& settings, const TaskFacts& task);

// The threads that are a task's share of the cores; 0: not known.
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

// Whether the list of GPUs is still the one that we set: BOOTSTRAP_GPU counts in that one, and means nothing in a list
// that the program has made itself.
bool has_our_gpu_list(const OwnPlan& own);

}  // namespace bootstrap
