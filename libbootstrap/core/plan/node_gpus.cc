// The GPU half of a plan: whether and how the tasks of this node get GPUs, and the variables for them.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/node_gpus.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "core/plan/plan.h"
#include "core/util/records.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// Slurm gave the step parts of GPUs (gres/shard, gres/mps): to share them is what was asked for.
bool has_shares(const Environment& environment) {
  return environment.has("SLURM_SHARDS_ON_NODE") || environment.has("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
}

// Tasks that Slurm dealt out unevenly need no more GPUs, but another spread.
tl::unexpected<Error> refuse_oversubscription(const StepFacts& facts, const Place& place, std::size_t gpus) {
  const auto& host = facts.layout.hosts()[place.node];
  const std::size_t tasks = place.local_size;
  const auto spread = note_spread(facts.layout);
  if (!spread.empty() && facts.layout.size() / facts.layout.node_count() <= gpus) {
    return fail(ErrorCode::kMisplaced, cat({describe_sharing(host, tasks, "would share", gpus), "; ", spread}));
  }
  return fail(ErrorCode::kMisplaced, cat({describe_sharing(host, tasks, "would share", gpus),
                                          "; request one GPU for each task (--gres=gpu:", std::to_string(tasks),
                                          ") or none (--gres=none), or use --bootstrap-gpu-share to share them"}));
}

// Without the plugin Slurm may have bound GPUs, and a task that asks sees what is left to it. SLURM_GPUS_ON_NODE still
// counts those of the node's tasks together.
bool is_narrowed(const StepFacts& facts, const GpuList& list) {
  if (!facts.is_one_task || facts.environment.get(kStepTagVariable) == step_tag(facts.id)) return false;
  const auto of_node = parse_unsigned(facts.environment.get("SLURM_GPUS_ON_NODE").value_or(""), kMaxGpus);
  return of_node && *of_node > list.entries.size();
}

// Files that a task can try to open: those of the list's entries, then those of the node's other GPUs. None when those
// of the entries are not all known. Where they are guessed, the others are all that there are: the number of those that
// can be opened is right then, whichever file belongs to whom.
std::vector<std::string> devices_to_try(const NodeGpus& node, const StepFacts& facts) {
  std::vector<std::string> devices;
  for (std::size_t entry = 0; entry < node.gpus.size(); ++entry) {
    devices.push_back(device_of(node.list, node.gpus[entry], entry));
    if (devices.back().empty()) return {};
  }
  for (const auto& device : facts.device_files) {
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
  }
  return devices;
}

std::string origin_of_list(const NodeGpus& node) {
  constexpr std::array<std::string_view, 3> kHow{"the same in all tasks of the node", "each task's own GPU first",
                                                 "each task's own GPU alone"};
  const bool from_slurm = std::is_sorted(node.order.begin(), node.order.end());
  const auto order = from_slurm             ? "Slurm's order, "
                     : node.order_matters() ? "near to the tasks' cores, "
                                            : "in groups, ";
  return cat({order, kHow[static_cast<std::size_t>(node.mode)]});
}

// An unasked step keeps Slurm's list. The site's gpu= applies to steps that ask.
bool is_untouched(const StepFacts& facts, const Settings& settings) {
  return facts.decision.set_up != SetUp::kAllSettings && settings.gpu.source < Source::kEnvironment;
}

}  // namespace

GpuBindDefault gpu_bind_default(std::uint32_t major, std::uint32_t minor, std::uint32_t micro) {
  if (std::tuple(major, minor, micro) >= std::tuple(23U, 11U, 4U)) {
    return {"SLURM_GRES_FLAGS", "allow-task-sharing", "--gres-flags=allow-task-sharing", true};
  }
  return {"SLURM_GPU_BIND", "none", "--gpu-bind=none", false};
}

bool needs_gpu_places(const StepFacts& facts, const Settings& settings) {
  if (!facts.has_gpus || settings.gpu.value == GpuMode::kOff || is_untouched(facts, settings)) return false;
  const auto& list = facts.gpu_list;
  return list && (list->entries.size() > 1 || settings.cpu_near.value);
}

std::string describe_sharing(const std::string& host, std::size_t tasks, std::string_view share, std::size_t gpus) {
  return cat({std::to_string(tasks), " tasks on ", host, " ", share, " ", counted(gpus, "GPU"),
              ", and NCCL does not work with two ranks on one"});
}

bool is_oversubscribed(const StepFacts& facts, const Settings& settings) {
  if (!facts.has_gpus || settings.gpu.value == GpuMode::kOff || facts.ranks_here.empty()) return false;
  const auto& list = facts.gpu_list;
  const auto tasks = facts.layout.place(facts.ranks_here.front()).local_size;
  return list && lacks_gpus(settings, tasks, list->entries.size()) && !is_narrowed(facts, *list) &&
         !has_shares(facts.environment);
}

Result<std::optional<NodeGpus>> make_node_gpus(const StepFacts& facts, const Settings& settings) {
  if (!facts.has_gpus || settings.gpu.value == GpuMode::kOff || facts.ranks_here.empty()) return std::nullopt;
  const bool is_dealt = facts.is_one_task && facts.environment.get(kStepTagVariable) == step_tag(facts.id);
  const auto& list = facts.gpu_list;
  if (!list && settings.gpu.value != GpuMode::kIndex && !is_untouched(facts, settings) && !is_dealt &&
      has_users_hip_list(facts.environment)) {
    return fail(ErrorCode::kMisplaced, cat({setting_text(settings, "gpu"),
                                            " does not work with your HIP_VISIBLE_DEVICES; unset it, or use index"}));
  }
  if (!list) return std::nullopt;
  const auto& place = facts.layout.place(facts.ranks_here.front());
  const bool is_own_list = is_narrowed(facts, *list);
  const bool is_left_alone = is_untouched(facts, settings);
  // Each task has its own entry of the list, by LOCAL_RANK; torchrun has all of them.
  const bool fits = facts.decision.set_up == SetUp::kTorchrun || list->entries.size() == place.local_size;
  if (is_left_alone && (list->has_mig || !fits)) return std::nullopt;
  if (is_oversubscribed(facts, settings)) {
    const bool is_refused = !facts.is_one_task && facts.decision.asked == Asked::kStrongly;
    if (is_refused) return refuse_oversubscription(facts, place, list->entries.size());
    // A task sees what is left of the list: one GPU of its own with --bootstrap-gpu=narrow or a binding of Slurm's.
    if (!is_dealt) return std::nullopt;
  }
  NodeGpus node;
  node.is_untouched = is_left_alone;
  node.mode = list->has_mig || is_own_list ? GpuMode::kNarrow : is_left_alone ? GpuMode::kIndex : settings.gpu.value;
  node.is_own_list = is_own_list;
  if (node.mode == GpuMode::kFirst && !list->kind->is_ordered) {
    return fail(ErrorCode::kMisplaced, cat({setting_text(settings, "gpu"), " does not work with ", list->kind->variable,
                                            ", which selects GPUs and does not order them; use index or narrow"}));
  }
  node.tasks = place.local_size;
  node.gpus = find_gpus(*list, facts.gpus_of_node);
  node.list = *list;
  node.devices = devices_to_try(node, facts);
  for (const auto name : kSlurmGpuVariables) {
    const auto value = facts.environment.get(name);
    if (value && name != node.kind().variable) node.slurms.emplace_back(name, *value);
  }
  node.users_bind =
      read_record<UsersBind>(facts.environment.get(kUsersBindVariable).value_or("")).value_or(UsersBind());
  node.srun_has_plugin = facts.layout_source == LayoutSource::kStepLayout;
  node.remedy = facts.gpu_bind_option;
  node.order.resize(node.gpus.size());
  std::iota(node.order.begin(), node.order.end(), 0U);
  if (node.may_reorder()) order_gpus(node, std::vector<CpuSet>(node.tasks));
  return node;
}

void add_gpu_variables(VariableList& variables, const NodeGpus& gpus, const GpuView& view) {
  // Without a list all GPUs are seen in this order anyway.
  const bool is_ours = !gpus.is_untouched && (!gpus.list.is_assumed || gpus.mode != GpuMode::kIndex);
  if (is_ours) {
    variables.own(gpus.kind().variable, view.list,
                  view.is_as_planned ? origin_of_list(gpus) : "what Slurm left this task, its own GPU first",
                  gpus.mode != GpuMode::kIndex);
  }
  variables.own(kGpuVariable, std::to_string(view.own), "the task's own GPU in that list", true);
  const bool is_by_local_rank = view.is_as_planned && !view.is_alone && gpus.tasks <= gpus.order.size();
  if (is_by_local_rank) variables.last().of_place = &Place::local_rank;
  if (gpus.is_untouched) return;
  if (view.group.size() > 1 && !variables.is_left_out(kGroupVariable)) {
    variables.own(kGroupVariable, join(view.group, ","), "all GPUs that are the task's own", true);
  }
  if (!view.uuids.empty() && !variables.is_left_out(kUuidsVariable)) {
    variables.own(kUuidsVariable, join(view.uuids, ","), "their UUIDs", true);
  }
}

}  // namespace bootstrap
