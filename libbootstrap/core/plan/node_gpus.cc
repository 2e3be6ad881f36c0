// Whether and how the tasks of this node get GPUs, what each task sees of them, and the variables for that.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/node_gpus.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "core/hardware/gpu_assignment.h"
#include "core/settings/variables.h"
#include "core/util/records.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// True if Slurm gave the step parts of GPUs (gres/shard, gres/mps): the user asked to share GPUs.
bool has_shares(const Environment& environment) {
  return environment.has("SLURM_SHARDS_ON_NODE") || environment.has("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
}

// If Slurm spread the tasks unevenly, the step needs an even spread and no more GPUs.
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

// True if Slurm left this task a part of the node's GPUs, as it may without the plugin. SLURM_GPUS_ON_NODE still counts
// the GPUs of all tasks of the node.
bool is_narrowed(const StepFacts& facts, const GpuList& list) {
  if (!facts.is_one_task || facts.environment.get(kStepTagVariable) == step_tag(facts.id)) return false;
  const auto of_node = parse_unsigned(facts.environment.get("SLURM_GPUS_ON_NODE").value_or(""), kMaxGpus);
  return of_node && *of_node > list.entries.size();
}

// Files that a task can try to open: those of the list's entries, then those of the node's other GPUs. Empty if the
// file of an entry is not known. If the files of the entries are guesses, the list has all files of the node, so the
// number of files that can be opened is right.
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

using Entries = std::vector<std::uint32_t>;  // indices into GpuList::entries

bool has(const Entries& entries, std::uint32_t entry) {
  return std::find(entries.begin(), entries.end(), entry) != entries.end();
}

Entries own_entries(const NodeGpus& node, std::uint32_t local_rank) {
  if (node.is_own_list) return node.order;
  Entries own;
  for (const auto position : positions_of(local_rank, node.tasks, node.order.size())) {
    own.push_back(node.order[position]);
  }
  return own;
}

// `own` first, then the other entries of `all`.
Entries own_first(const Entries& own, const Entries& all) {
  auto entries = own;
  std::copy_if(all.begin(), all.end(), std::back_inserter(entries), [&](auto entry) { return !has(own, entry); });
  return entries;
}

std::string list_text(const GpuList& list, const Entries& entries) {
  std::vector<std::string_view> names;
  for (const auto entry : entries) names.emplace_back(list.entries[entry]);
  return join(names, ",");
}

// Each task's own GPUs are the first of its list: their ordinals are 0, 1, ... in all tasks.
GpuView view_alone(const Entries& own, std::string list) {
  GpuView view;
  view.list = std::move(list);
  for (std::uint32_t i = 0; i < std::max<std::size_t>(own.size(), 1); ++i) view.group.push_back(i);
  view.is_alone = true;
  view.own_entries = own;
  return view;
}

// The entries whose devices the task may open; nullopt if none is hidden, or if that is not known. If Slurm constrains
// no devices, more than those of the step are open. The number decides, because the file of a single entry is less
// certain: gres.conf may list the files in another order than that of the PCI bus.
std::optional<Entries> open_entries(const NodeGpus& node, const GpuVisibility& visibility) {
  const auto count = [&](GpuVisibility::Access access) {
    return static_cast<std::size_t>(std::count(visibility.devices.begin(), visibility.devices.end(), access));
  };
  const auto entries = node.list.entries.size();
  const auto open = count(GpuVisibility::Access::kOpen);
  if (visibility.devices.size() < entries || count(GpuVisibility::Access::kUnknown) != 0 || open >= entries ||
      open == 0) {
    return std::nullopt;
  }
  Entries found;
  for (std::uint32_t entry = 0; entry < entries; ++entry) {
    if (visibility.devices[entry] == GpuVisibility::Access::kOpen) found.push_back(entry);
  }
  // The open files are not those of the entries. The task still counts the GPUs that it can open from 0.
  for (std::uint32_t entry = 0; found.size() < open; ++entry) {
    if (!has(found, entry)) found.push_back(entry);
  }
  return found;
}

// The entries of Slurm's narrowed list; nullopt if one of them is not in the list of the step.
std::optional<Entries> named_entries(const GpuList& list, std::string_view text) {
  Entries found;
  for (const auto name : split(text, ',')) {
    const auto entry = std::find(list.entries.begin(), list.entries.end(), name);
    if (entry == list.entries.end()) return std::nullopt;
    found.push_back(static_cast<std::uint32_t>(entry - list.entries.begin()));
  }
  return found;
}

// The task's planned entries among those that Slurm left it. If there is none: one that Slurm left, by local rank.
Entries own_among(const NodeGpus& node, std::uint32_t local_rank, const Entries& left) {
  Entries own;
  for (const auto entry : own_entries(node, local_rank)) {
    if (has(left, entry)) own.push_back(entry);
  }
  if (own.empty()) own.push_back(left[local_rank % left.size()]);
  return own;
}

std::string without(const UsersBind& bind) {
  return cat({"without ", bind.option, " each task still has a GPU of its own"});
}

std::string of_all(const NodeGpus& node, std::size_t left) {
  return cat({std::to_string(left), " of ", std::to_string(node.list.entries.size()), " GPUs of the step"});
}

GpuView hidden_view(const NodeGpus& node, std::uint32_t local_rank, const Entries& open) {
  const auto own = own_among(node, local_rank, open);
  // Indices count the GPUs that the task can open, from 0.
  std::vector<std::string> list;
  for (const auto entry : own_first(own, open)) {
    const auto ordinal = std::find(open.begin(), open.end(), entry) - open.begin();
    list.push_back(node.list.has_uuids ? node.list.entries[entry] : std::to_string(ordinal));
  }
  auto view = view_alone(own, join(list, ","));
  const bool is_users = node.users_bind.kind != GpuBind::kNone;
  const auto what = cat({"hides all but ", of_all(node, open.size()),
                         " from a task, which disables direct copies between GPUs (NVLink, CUDA IPC); "});
  view.warning = is_users ? cat({"your ", node.users_bind.option, " ", what, without(node.users_bind)})
                          : cat({"Slurm ", what, "start the step with ", node.remedy,
                                 node.srun_has_plugin ? "" : ", or load the plugin where srun runs"});
  return view;
}

GpuView named_view(const NodeGpus& node, std::uint32_t local_rank, const GpuVisibility& visibility) {
  const auto named = named_entries(node.list, visibility.list);
  const auto own = named ? own_among(node, local_rank, *named) : Entries{0};
  auto view = view_alone(own, named ? list_text(node.list, own_first(own, *named)) : visibility.list);
  if (!named) view.own_entries.clear();
  if (node.mode == GpuMode::kNarrow) return view;  // this mode means a short list
  const auto whose = visibility.is_anothers_list ? "another Slurm plugin" : cat({"your ", node.users_bind.option});
  view.warning =
      cat({whose, " leaves a task ", of_all(node, named ? named->size() : 1), " in ", node.list.kind->variable,
           ", where libraries that look for peers (CUDA-aware MPI, NVSHMEM) do not find the others; ",
           visibility.is_anothers_list ? "--bootstrap-gpu=index shows all of them to each task"
                                       : without(node.users_bind)});
  return view;
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
  // Each task owns the entry LOCAL_RANK of the list; torchrun owns all entries.
  const bool fits = facts.decision.set_up == SetUp::kTorchrun || list->entries.size() == place.local_size;
  if (is_left_alone && (list->has_mig || !fits)) return std::nullopt;
  if (is_oversubscribed(facts, settings)) {
    const bool is_refused = !facts.is_one_task && facts.decision.asked == Asked::kStrongly;
    if (is_refused) return refuse_oversubscription(facts, place, list->entries.size());
    // This task sees the list that it was given: its own GPU alone with --bootstrap-gpu=narrow or a binding of Slurm's.
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

// HIP reads CUDA_VISIBLE_DEVICES on top of ROCR_VISIBLE_DEVICES. If Slurm set both, they are equal.
bool NodeGpus::has_users_list() const {
  return std::any_of(slurms.begin(), slurms.end(), [&](const auto& variable) {
    return variable.first == "ROCR_VISIBLE_DEVICES" && variable.second != list.text();
  });
}

bool NodeGpus::order_matters() const {
  return may_reorder() &&
         std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.near != gpus.front().near; });
}

std::string NodeGpus::ordered_list() const { return list_text(list, order); }

void order_gpus(NodeGpus& node, const std::vector<CpuSet>& cores) {
  constexpr std::size_t kMostDistances = 4096;  // 64 tasks with 64 GPUs; each takes about a microsecond
  const bool is_limited = cores.size() * node.gpus.size() > kMostDistances;
  Distances distances;
  for (const auto& task : cores) {
    auto& row = distances.emplace_back(node.gpus.size(), kNear);
    if (is_limited || task.empty()) continue;
    std::transform(node.gpus.begin(), node.gpus.end(), row.begin(),
                   [&](const Gpu& gpu) { return distance(task, gpu); });
  }
  node.order = assign_gpus(distances, by_locality(node.gpus));
}

GpuView view_of(const NodeGpus& node, std::uint32_t local_rank) {
  const auto own = own_entries(node, local_rank);
  if (node.mode == GpuMode::kFirst) return view_alone(own, list_text(node.list, own_first(own, node.order)));
  if (node.mode == GpuMode::kNarrow) return view_alone(own, list_text(node.list, own));
  GpuView view;
  view.list = node.ordered_list();
  view.group = positions_of(local_rank, node.tasks, node.order.size());
  view.own_entries = own;
  return view;
}

GpuView view_of(const NodeGpus& node, std::uint32_t local_rank, const GpuVisibility& visibility) {
  const auto open = open_entries(node, visibility);
  const bool is_narrowed = !visibility.list.empty() && visibility.list != node.list.text();
  if (!open && node.tasks == 1 && node.users_bind.kind == GpuBind::kNarrow) {
    // Slurm binds the tasks of the step's other nodes, which then pass for nodes of their own, but not a single task.
    auto view = view_alone(own_entries(node, local_rank), node.ordered_list());
    view.is_as_planned = false;
    return view;
  }
  if (!open && !(is_narrowed && (node.users_bind.kind != GpuBind::kNone || visibility.is_anothers_list)))
    return view_of(node, local_rank);
  auto view = open ? hidden_view(node, local_rank, *open) : named_view(node, local_rank, visibility);
  view.is_as_planned = false;
  return view;
}

CpuSet cores_near(const NodeGpus& node, const GpuView& view) {
  CpuSet cores;
  for (const auto entry : view.own_entries) cores = cores | node.gpus[entry].near;
  return cores;
}

void add_gpu_variables(VariableList& variables, const NodeGpus& gpus, const GpuView& view) {
  // Without a list a program sees all GPUs in this order anyway.
  const bool is_ours = !gpus.is_untouched && (!gpus.list.is_assumed || gpus.mode != GpuMode::kIndex);
  if (is_ours) {
    variables.own(gpus.kind().variable, view.list,
                  view.is_as_planned ? origin_of_list(gpus) : "what Slurm left this task, its own GPU first",
                  gpus.mode != GpuMode::kIndex);
  }
  variables.own(kGpuVariable, std::to_string(view.group.front()), "the task's own GPU in that list", true);
  const bool is_by_local_rank = view.is_as_planned && !view.is_alone && gpus.tasks <= gpus.order.size();
  if (is_by_local_rank) variables.last().of_place = &Place::local_rank;
  if (gpus.is_untouched) return;
  if (view.group.size() > 1 && !variables.is_left_out(kGroupVariable)) {
    variables.own(kGroupVariable, join(view.group, ","), "all GPUs that are the task's own", true);
  }
  if (gpus.list.has_uuids && !view.own_entries.empty() && !variables.is_left_out(kUuidsVariable)) {
    variables.own(kUuidsVariable, list_text(gpus.list, view.own_entries), "their UUIDs", true);
  }
}

}  // namespace bootstrap
