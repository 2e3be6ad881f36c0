// The GPUs of the tasks on this node: their order, what a task can open, and its cores near them.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/task_gpus.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <utility>

#include "core/plan/node_gpus.h"
#include "probe/own_process.h"

namespace bootstrap {

struct GpuOrder::Page {
  std::atomic<std::uint32_t> count = 0;  // 0: not decided
  std::array<std::uint16_t, kMaxGpus> order{};
};

void GpuOrder::prepare(const NodeGpus& node) {
  if (page_ != nullptr || !node.order_matters()) return;
  void* const memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  page_ = new (memory) Page;
  cores_.resize(node.tasks);
  is_noted_.resize(node.tasks);
}

void GpuOrder::note_task(const NodeGpus& node, std::uint32_t local_rank, pid_t process) {
  if (page_ == nullptr || local_rank >= cores_.size() || is_noted_[local_rank]) return;  // listed twice
  is_noted_[local_rank] = true;
  cores_[local_rank] = cores_of(process);
  if (std::find(is_noted_.begin(), is_noted_.end(), false) != is_noted_.end()) return;
  auto ordered = node;
  order_gpus(ordered, cores_);
  for (std::size_t i = 0; i < ordered.order.size(); ++i) page_->order[i] = static_cast<std::uint16_t>(ordered.order[i]);
  page_->count.store(static_cast<std::uint32_t>(ordered.order.size()), std::memory_order_release);
}

std::optional<NodeGpus> GpuOrder::reordered(const NodeGpus& node) const {
  const auto count = page_ == nullptr ? 0 : page_->count.load(std::memory_order_acquire);
  if (count == 0 || count != node.order.size()) return std::nullopt;
  std::vector<std::uint32_t> order(page_->order.begin(), page_->order.begin() + count);
  if (order == node.order) return std::nullopt;
  auto gpus = node;
  gpus.order = std::move(order);
  return gpus;
}

namespace {

// Slurm narrows all of its variables or none. A plugin that binds GPUs, such as mpibind, writes only the variable that
// programs read, and its user asked for that.
bool is_anothers(spank_t spank, const NodeGpus& gpus, const std::string& list) {
  constexpr std::string_view kOfSlurmAlone = "SLURM_STEP_GPUS";
  if (list.empty() || list == gpus.list.text()) return false;
  return std::any_of(gpus.slurms.begin(), gpus.slurms.end(), [&](const auto& variable) {
    if (variable.first != kOfSlurmAlone) return false;
    const auto now = task_variable(spank, "SLURM_STEP_GPUS");
    return !now || *now == variable.second;  // Slurm 22.05 unsets all with --gpu-bind=none
  });
}

}  // namespace

Result<GpuView> look_at_gpus(spank_t spank, const NodeGpus& gpus, const Settings& settings, const Place& place) {
  GpuVisibility visibility{try_devices(gpus.devices), task_variable(spank, gpus.kind().variable).value_or("")};
  visibility.is_anothers_list = settings.gpu.source < Source::kEnvironment && is_anothers(spank, gpus, visibility.list);
  auto view = view_of(gpus, place.local_rank, visibility);
  if (!view.is_as_planned) return view;
  // With --gpu-bind=none Slurm 22.05 removes its variables from the task. 23.11 narrows them: all or none.
  if (visibility.list == gpus.list.text() && !gpus.has_users_list()) return view;
  for (const auto& [name, value] : gpus.slurms) {
    const std::string variable(name);
    if (task_variable(spank, variable) == value) continue;
    auto set = set_task_variable(spank, variable, value);
    if (!set) return fail(set.error());
  }
  return view;
}

Status bind_near(const NodeGpus& node, const GpuView& view) {
  const auto cores = cores_of(0);
  const auto near = cores & cores_near(node, view);
  if (near.empty() || near == cores) return {};
  return bind_to(near);
}

}  // namespace bootstrap
