// The GPUs of the step on this node: which task gets which, what each task sees, and their variables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hardware/gpu_list.h"
#include "core/program/srun_arguments.h"
#include "core/settings/settings.h"
#include "core/step/planned_variables.h"
#include "core/step/step_facts.h"
#include "core/util/result.h"

namespace bootstrap {

struct NodeGpus {
  GpuList list;
  GpuMode mode = GpuMode::kIndex;    // as asked for, or kNarrow for MIG; never kOff
  std::size_t tasks = 0;             // of this node
  std::vector<Gpu> gpus;             // by entry of the list: its GPU, as far as it is known
  std::vector<std::uint32_t> order;  // entry at each position; Slurm's own order until the tasks' cores are known
  std::vector<std::string> devices;  // files to try in the task: those of the entries first, then others of the node
  std::vector<std::pair<std::string_view, std::string>> slurms;  // Slurm's other GPU variables, as the step has them
  bool is_untouched = false;     // the list stays as Slurm or the user set it: entry LOCAL_RANK is the task's own
  bool is_own_list = false;      // Slurm left this task nothing but its own GPUs
  UsersBind users_bind;          // the user's --gpu-bind or a similar option, which is obeyed
  bool srun_has_plugin = false;  // else Slurm may have bound GPUs by itself
  std::string_view remedy;       // the option of srun that stops Slurm from hiding GPUs: "--gpu-bind=none"

  const GpuListKind& kind() const { return *list.kind; }
  bool may_reorder() const { return !is_untouched && (kind().is_ordered || mode != GpuMode::kIndex); }
  bool has_users_list() const;  // CUDA's list is the user's, on top of Slurm's, and does not show what Slurm hid
  bool order_matters() const;   // the GPUs are near different cores, so the tasks' cores matter
  std::string ordered_list() const;
};

// What one task can see of its GPUs just before its program starts.
struct GpuVisibility {
  enum class Access : std::uint8_t { kOpen, kDenied, kUnknown };

  std::vector<Access> devices;    // of NodeGpus::devices; empty: not tried
  std::string list;               // of NodeGpus::list's variable, as Slurm left it for this task; empty: not set
  bool is_anothers_list = false;  // another plugin has written this list since, and the user did not ask us for a list
};

struct GpuView {
  std::string list;                  // value of the list variable
  std::vector<std::uint32_t> group;  // never empty: ordinals in `list` of the task's own GPUs, as the vendor counts
  std::vector<std::uint32_t> own_entries;  // the same as entries of NodeGpus::list; empty when not known
  bool is_as_planned = true;  // else Slurm left the task fewer GPUs, and Slurm's variables stay as they are
  bool is_alone = false;      // ordinals do not follow LOCAL_RANK: the task passes for a node of its own
  std::string warning;        // one sentence, or empty
};

// Orders the GPUs so that each task's own is near its cores. `cores`: by local rank; an empty set: not known.
void order_gpus(NodeGpus& node, const std::vector<CpuSet>& cores);

// What a task sees if nothing is hidden from it.
GpuView view_of(const NodeGpus& node, std::uint32_t local_rank);

// What a task sees of the GPUs that Slurm left it. If Slurm narrowed the list, the task gets the whole list again,
// unless the user asked for the narrow one or the devices cannot be opened.
GpuView view_of(const NodeGpus& node, std::uint32_t local_rank, const GpuVisibility& visibility);

// The CPUs near the task's own GPUs; empty: not known.
CpuSet cores_near(const NodeGpus& node, const GpuView& view);

inline constexpr std::string_view kGpuVariable = "BOOTSTRAP_GPU";
inline constexpr std::string_view kGroupVariable = "BOOTSTRAP_GPUS";
inline constexpr std::string_view kUuidsVariable = "BOOTSTRAP_GPU_UUIDS";

// "4 tasks on node001 share 2 GPUs, and NCCL does not work with two ranks on one".
std::string describe_sharing(const std::string& host, std::size_t tasks, std::string_view share, std::size_t gpus);

// The variable that keeps srun from hiding GPUs from tasks, and the option that does the same.
struct GpuBindDefault {
  std::string_view variable;
  std::string_view value;
  std::string_view option;
  bool is_flag = false;  // one of several words in the variable
};
// From 23.11.4 on Slurm can bind without hiding; before, it must not bind.
GpuBindDefault gpu_bind_default(std::uint32_t major, std::uint32_t minor, std::uint32_t micro);

// True if the places of the GPUs matter.
bool needs_gpu_places(const StepFacts& facts, const Settings& settings);

// True if this node has more tasks than GPUs and the user did not allow sharing.
bool is_oversubscribed(const StepFacts& facts, const Settings& settings);

// Returns nullopt if the tasks' GPUs stay as Slurm set them. Fails if this node cannot do what a step that asks has
// set.
Result<std::optional<NodeGpus>> make_node_gpus(const StepFacts& facts, const Settings& settings);

// Adds the variables of one task, from the GPUs that it sees.
void add_gpu_variables(VariableList& variables, const NodeGpus& gpus, const GpuView& view);

}  // namespace bootstrap
