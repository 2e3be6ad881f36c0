// The view of this task's node, from the plan, the machine and Slurm's variables.
// SPDX-License-Identifier: Apache-2.0
#include "tools/explain_gpus/node_view.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/plan/node_gpus.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using Indices = std::vector<std::uint32_t>;  // into NodeView::topology.gpus

// The GPUs of a step in a topology that may know fewer of them than Slurm.
class StepGpus {
 public:
  StepGpus(Topology& topology, const GpuList& list, const Environment& environment) : topology_(topology), list_(list) {
    for (std::uint32_t i = 0; i < topology.gpus.size(); ++i) {
      if (topology.gpus[i].vendor == list.kind->vendor) of_vendor_.push_back(i);
    }
    for (const auto word : split(environment.get("SLURM_STEP_GPUS").value_or(""), ',')) {
      if (const auto id = parse_unsigned(word, kMaxGpus - 1)) all_.push_back(index_of(static_cast<std::uint32_t>(*id)));
    }
  }

  const Indices& all() const { return all_; }

  // What the entries of the task's list mean, in its order.
  Indices listed() {
    Indices indices;
    for (std::size_t entry = 0; entry < list_.entries.size(); ++entry) {
      const auto& name = list_.entries[entry];
      const auto same = std::find_if(topology_.gpus.begin(), topology_.gpus.end(),
                                     [&](const Gpu& gpu) { return list_.has_uuids && gpu.uuid == name; });
      if (same != topology_.gpus.end()) {
        indices.push_back(static_cast<std::uint32_t>(same - topology_.gpus.begin()));
      } else if (entry < list_.ids.size()) {
        indices.push_back(index_of(list_.ids[entry]));
      }
    }
    return indices;
  }

 private:
  std::uint32_t index_of(std::uint32_t id) {
    while (of_vendor_.size() <= id) {
      Gpu gpu;
      gpu.vendor = list_.kind->vendor;
      const bool has_file = list_.kind->vendor == GpuVendor::kNvidia && !list_.has_mig;
      if (has_file) gpu.device = cat({"/dev/nvidia", std::to_string(of_vendor_.size())});
      of_vendor_.push_back(static_cast<std::uint32_t>(topology_.gpus.size()));
      topology_.gpus.push_back(std::move(gpu));
    }
    return of_vendor_[id];
  }

  Topology& topology_;
  const GpuList& list_;
  Indices of_vendor_;  // by the number that Slurm gives them
  Indices all_;
};

Indices pick(const Indices& list, const Indices& places) {
  Indices picked;
  for (const auto place : places) {
    if (place < list.size()) picked.push_back(list[place]);
  }
  return picked;
}

Indices ordinals(const StepPlan& plan, std::string_view name) {
  Indices found;
  const auto at = plan.find(name);
  if (!at) return found;
  for (const auto word : split(plan.variables[*at].value(0), ',')) {
    if (const auto ordinal = parse_unsigned(word, kMaxGpus - 1)) found.push_back(static_cast<std::uint32_t>(*ordinal));
  }
  return found;
}

// The GPUs of every task, dealt out once more as slurmstepd did.
std::vector<Indices> deal(const Topology& topology, const Indices& step, const std::vector<CpuSet>& cores) {
  NodeGpus plan;
  plan.tasks = cores.size();
  for (const auto index : step) plan.gpus.push_back(topology.gpus[index]);
  order_gpus(plan, cores, topology);
  std::vector<Indices> dealt;
  for (std::uint32_t task = 0; task < cores.size(); ++task) {
    dealt.push_back(pick(pick(step, plan.order), positions_of(task, cores.size(), step.size())));
  }
  return dealt;
}

std::vector<CpuSet> cores_of_tasks(const TaskPlan& task, const CpuSet& own_cores) {
  const auto& place = task.facts.layout.place(task.facts.local_ranks.front());
  auto cores = bound_cores(task.facts.environment, place.local_size);
  if (!own_cores.empty()) cores[place.local_rank] = own_cores;
  return cores;
}

// The GPUs whose device nodes this task can open, if they are fewer than the step has here: Slurm hides the others from
// it. SLURM_STEP_GPUS is cut with them then, and counts wrongly in Slurm 22.05; SLURM_GPUS_ON_NODE stays as it was.
std::optional<Indices> open_gpus(Topology& topology, const TaskPlan& task, const OwnAccess& access) {
  const auto given = parse_unsigned(task.facts.environment.get("SLURM_GPUS_ON_NODE").value_or(""), kMaxGpus);
  const auto open = std::count_if(access.devices.begin(), access.devices.end(), [](auto& one) { return one.is_open; });
  if (!given || open == 0 || static_cast<std::uint64_t>(open) >= *given) return std::nullopt;
  Indices indices;
  for (const auto& device : access.devices) {
    const auto same = [&](const Gpu& gpu) { return gpu.device == device.path; };
    auto found = std::find_if(topology.gpus.begin(), topology.gpus.end(), same);
    if (found == topology.gpus.end()) {
      Gpu gpu;
      gpu.device = device.path;
      found = topology.gpus.insert(topology.gpus.end(), std::move(gpu));
    }
    if (device.is_open) indices.push_back(static_cast<std::uint32_t>(found - topology.gpus.begin()));
  }
  return indices;
}

// The places in the task's list of what is its own.
Indices own_places(const StepPlan& plan) {
  const auto group = ordinals(plan, "BOOTSTRAP_GPUS");
  return group.empty() ? ordinals(plan, "BOOTSTRAP_GPU") : group;
}

void add_hidden_gpus(NodeView& view, const TaskPlan& task, const Indices& open, std::size_t given) {
  const auto& place = task.facts.layout.place(task.facts.local_ranks.front());
  auto& self = view.ranks[place.local_rank];
  self.usable = open;
  if (task.plan.gpus && !task.plan.gpus->list.has_uuids) {
    // The entries of its list count what it can open.
    for (const auto ordinal : own_places(task.plan)) {
      const auto& entries = task.plan.gpus->list.entries;
      const auto number = ordinal < entries.size() ? parse_unsigned(entries[ordinal], kMaxGpus) : std::nullopt;
      if (number && *number < open.size()) self.gpus.push_back(open[*number]);
    }
  }
  if (self.gpus.empty()) self.gpus = open;
  for (auto& rank_view : view.ranks) rank_view.knows_gpus = rank_view.rank == place.rank;
  if (given == view.topology.gpus.size()) {
    for (std::uint32_t i = 0; i < view.topology.gpus.size(); ++i) view.step_gpus.push_back(i);
  } else {
    view.step_gpus = open;
  }
  view.notes.push_back(cat({"Slurm hides all but ", std::to_string(open.size()), " of the ", std::to_string(given),
                            " GPUs of the step from this task; what another rank sees, only that rank can tell: ",
                            "--rank prints its view."}));
}

// Which GPUs belong to each rank, and which it can use.
void add_gpus(NodeView& view, const TaskPlan& task, const std::vector<CpuSet>& cores) {
  const auto& plan = *task.plan.gpus;
  const auto& place = task.facts.layout.place(task.facts.local_ranks.front());
  StepGpus gpus(view.topology, plan.list, task.facts.environment);
  const auto listed = gpus.listed();
  view.step_gpus = gpus.all();
  const auto own = pick(listed, own_places(task.plan));

  const bool is_whole = listed.size() == view.step_gpus.size();
  std::vector<Indices> dealt;
  if (plan.mode == GpuMode::kIndex && is_whole) {
    for (std::uint32_t one = 0; one < view.ranks.size(); ++one) {
      dealt.push_back(pick(listed, positions_of(one, view.ranks.size(), listed.size())));
    }
  } else {
    dealt = deal(view.topology, view.step_gpus, cores);
  }
  const bool is_known = dealt[place.local_rank] == own;
  for (std::uint32_t one = 0; one < view.ranks.size(); ++one) {
    auto& rank_view = view.ranks[one];
    const bool is_self = one == place.local_rank;
    rank_view.knows_gpus = is_self || is_known;
    if (rank_view.knows_gpus) rank_view.gpus = is_self ? own : dealt[one];
    rank_view.usable = is_whole || is_self ? listed : rank_view.gpus;
  }
  if (!is_known && view.ranks.size() > 1) {
    view.notes.emplace_back(
        "The lists of this node's ranks differ, and what another rank has, only that rank can tell: --rank prints its "
        "view.");
  }
}

// Without an assignment: with --bootstrap-gpu=off, or where the plugin would refuse to make one.
void add_undealt_gpus(NodeView& view, const GpuList& list, const Environment& environment) {
  StepGpus gpus(view.topology, list, environment);
  const auto listed = gpus.listed();
  view.step_gpus = gpus.all();
  for (auto& rank_view : view.ranks) {
    rank_view.knows_gpus = false;
    rank_view.usable = listed;
  }
  view.notes.emplace_back("The GPUs were not dealt out; each program chooses for itself.");
}

}  // namespace

std::vector<CpuSet> bound_cores(const Environment& environment, std::size_t tasks) {
  std::vector<CpuSet> cores(tasks);
  const auto type = environment.get("SLURM_CPU_BIND_TYPE").value_or("");
  const auto words = split(environment.get("SLURM_CPU_BIND_LIST").value_or(""), ',');
  for (std::size_t task = 0; task < tasks; ++task) {
    const auto word = words[task % words.size()];  // as Slurm does with too short a list
    if (type.ends_with("mask_cpu:")) {
      cores[task] = CpuSet::parse_mask(word).value_or(CpuSet());
    } else if (type.ends_with("map_cpu:")) {
      cores[task] = CpuSet::parse_list(word).value_or(CpuSet());
    }
  }
  return cores;
}

NodeView node_view_of(const TaskPlan& task, const Topology& topology, const OwnAccess& access) {
  const auto& layout = task.facts.layout;
  const auto& place = layout.place(task.facts.local_ranks.front());
  NodeView view;
  view.host = layout.hosts()[place.node];
  view.step = to_string(task.facts.id);
  view.topology = topology;
  const auto cores = cores_of_tasks(task, access.cores);
  for (const auto rank : layout.ranks_on(place.node)) {
    RankView rank_view;
    rank_view.rank = rank;
    rank_view.local_rank = layout.place(rank).local_rank;
    rank_view.cpus = cores[rank_view.local_rank];
    view.ranks.push_back(std::move(rank_view));
  }
  if (const auto open = open_gpus(view.topology, task, access)) {
    const auto given = parse_unsigned(task.facts.environment.get("SLURM_GPUS_ON_NODE").value_or(""), kMaxGpus);
    add_hidden_gpus(view, task, *open, given.value_or(0));
  } else if (task.plan.gpus && !task.plan.gpus->is_own_list) {
    add_gpus(view, task, cores);
  } else if (const auto list = read_gpu_list(task.facts.environment)) {
    add_undealt_gpus(view, *list, task.facts.environment);
  }
  if (!task.is_set) {
    view.notes.emplace_back("The plugin did not set up this step; this is what it would have made of it.");
  }
  return view;
}

}  // namespace bootstrap
