// The order of the GPUs of a node. It depends on the cores of all tasks, which slurmstepd knows when it has forked
// them: it decides then, and the tasks read the decision from a page of memory that they share.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/gpu_order.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>

#include "probe/own_process.h"

namespace bootstrap {

struct GpuOrder::Page {
  std::atomic<std::uint32_t> count = 0;  // 0: not decided
  std::array<std::uint16_t, kMaxGpus> order{};
};

void GpuOrder::prepare(const NodeGpus& plan, const Topology& topology) {
  if (page_ != nullptr || !plan.order_matters()) return;
  void* const memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  page_ = new (memory) Page;
  topology_ = topology;
  cores_.resize(plan.tasks);
  is_noted_.resize(plan.tasks);
}

void GpuOrder::note_task(const NodeGpus& plan, std::uint32_t local_rank, pid_t process) {
  if (page_ == nullptr || local_rank >= cores_.size() || is_noted_[local_rank]) return;  // listed twice
  is_noted_[local_rank] = true;
  cores_[local_rank] = cores_of(process);
  if (std::find(is_noted_.begin(), is_noted_.end(), false) != is_noted_.end()) return;
  auto ordered = plan;
  order_gpus(ordered, cores_, topology_);
  for (std::size_t i = 0; i < ordered.order.size(); ++i) page_->order[i] = static_cast<std::uint16_t>(ordered.order[i]);
  page_->count.store(static_cast<std::uint32_t>(ordered.order.size()), std::memory_order_release);
}

bool GpuOrder::apply_to(NodeGpus& plan) const {
  const auto count = page_ == nullptr ? 0 : page_->count.load(std::memory_order_acquire);
  if (count == 0 || count != plan.order.size()) return false;
  const std::vector<std::uint32_t> order(page_->order.begin(), page_->order.begin() + count);
  if (order == plan.order) return false;
  plan.order = order;
  return true;
}

}  // namespace bootstrap
