// Whether a rank is about to use a GPU that is not its own, and whose it is.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/gpu_ownership.h"

#include <algorithm>

#include "comm/nccl/gpu_libraries.h"
#include "comm/nccl/nccl_library.h"
#include "core/plan/gpu_variables.h"
#include "core/step/rank_names.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// PyTorch's word, also on AMD's GPUs.
std::string cuda(std::uint32_t ordinal) { return cat({"cuda:", std::to_string(ordinal)}); }

bool has(const GpuOwnership& own, std::uint32_t ordinal) {
  return std::find(own.ordinals.begin(), own.ordinals.end(), ordinal) != own.ordinals.end();
}

// As positions_of() deals them out: by turns, what does not divide is no task's.
std::optional<Rank> owner(const Layout& layout, Rank rank, const GpuOwnership& own, std::uint32_t ordinal) {
  const auto& place = layout.place(rank);
  if (!own.is_shared_list || ordinal >= own.visible) return std::nullopt;
  const std::size_t tasks = place.local_size;
  if (tasks <= own.visible && ordinal >= own.visible / tasks * tasks) return std::nullopt;
  return layout.ranks_on(place.node)[tasks <= own.visible ? ordinal % tasks : ordinal];
}

std::string whose(const Layout& layout, Rank rank, const GpuOwnership& own, std::uint32_t ordinal) {
  const auto other = owner(layout, rank, own, ordinal);
  return other ? cat({"the GPU of ", describe_rank(layout, *other)}) : "which is not its own";
}

}  // namespace

std::optional<GpuOwnership> gpu_ownership(const TaskPlan& task) {
  if (!task.plan.gpus || task.plan.gpus->kind().vendor == GpuVendor::kIntel) return std::nullopt;
  if (!has_our_gpu_list(task)) return std::nullopt;
  GpuOwnership own;
  auto text = effective_value(task.plan, kGroupVariable);
  if (text.empty()) text = effective_value(task.plan, kGpuVariable);
  for (const auto word : split(text, ',')) {
    const auto ordinal = parse_unsigned(word, kMaxGpus - 1);
    if (!ordinal) return std::nullopt;
    own.ordinals.push_back(static_cast<std::uint32_t>(*ordinal));
  }
  const auto list = effective_value(task.plan, task.plan.gpus->kind().variable);
  own.visible = list.empty() ? task.plan.gpus->list.entries.size() : split(list, ',').size();
  const auto& place = task.facts.layout.place(task.facts.local_ranks.front());
  const bool is_alone = task.plan.gpus->mode != GpuMode::kIndex ||
                        effective_value(task.plan, "LOCAL_WORLD_SIZE") != std::to_string(place.local_size);
  own.is_shared_list = !is_alone;
  return own;
}

std::string describe_wrong_gpu(const Layout& layout, Rank rank, const GpuOwnership& own, std::uint32_t ordinal) {
  if (has(own, ordinal)) return {};
  return cat({describe_rank(layout, rank), " is about to use ", cuda(ordinal), ", ", whose(layout, rank, own, ordinal),
              "; its own is ", cuda(own.ordinals.front()), ": call ", used_gpu_libraries().set_device, "(",
              own.ordinals.front() == layout.place(rank).local_rank ? "LOCAL_RANK" : "BOOTSTRAP_GPU", ") before ",
              nccl::product(), ", or set SLURM_BOOTSTRAP_GUARD=fix"});
}

std::string describe_taken_gpu(const Layout& layout, Rank rank, const GpuOwnership& own,
                               const std::vector<std::uint32_t>& ordinals) {
  if (layout.place(rank).local_size == 1) return {};
  for (const auto ordinal : ordinals) {
    if (has(own, ordinal)) continue;
    return cat({describe_rank(layout, rank), " is about to use ", std::to_string(ordinals.size()),
                " GPUs by itself, among them ", cuda(ordinal), ", ", whose(layout, rank, own, ordinal),
                ": start one task on each node (--ntasks-per-node=1), or make communicators with ncclCommInitRank"});
  }
  return {};
}

}  // namespace bootstrap
