// A communicator of all ranks of the step with more roots than the program asked for, where the user wants that.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/multi_root.h"

#include <algorithm>
#include <mutex>

#include "comm/exchange.h"
#include "comm/nccl/communicator.h"
#include "core/exchange/nccl_roots.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// One rank of a node speaks: the reason is the same for all.
void complain(const HookedStep& step, const std::string& reason) {
  if (step.layout.place(step.rank).local_rank != 0) return;
  step.warn(cat({"SLURM_BOOTSTRAP_ROOTS: ", reason, "; the communicator has one root"}));
}

Result<std::vector<nccl::UniqueId>> exchange_ids(const HookedStep& step, const nccl::Functions& nccl,
                                                 std::uint32_t roots) {
  static std::mutex mutex;  // one round at a time
  static auto* const exchange = make_exchange(step.id, step.layout, step.rank, step.environment).release();
  const std::lock_guard lock(mutex);
  CommunicatorOptions options;
  options.roots = roots;
  options.deadline = std::chrono::steady_clock::now() + step.options.timeout;
  return exchange_unique_ids(*exchange, step.layout, world_group(step.layout, step.rank), roots, nccl, options);
}

}  // namespace

std::vector<nccl::UniqueId> multi_root_ids(const HookedStep& step, const nccl::Functions& nccl, std::uint32_t ranks,
                                           std::uint32_t rank) {
  if (!step.options.roots || ranks != step.layout.size() || rank != step.rank) return {};
  const auto roots = *step.options.roots == 0 ? root_count(ranks) : std::min(*step.options.roots, ranks);
  if (roots < 2) return {};
  if (nccl.init_rank_scalable == nullptr) {
    complain(step, cat({"NCCL ", nccl::version_text(nccl.version),
                        " has no ncclCommInitRankScalable; NCCL 2.23 and newer have it"}));
    return {};
  }
  auto ids = exchange_ids(step, nccl, roots);
  if (ids) return std::move(*ids);
  complain(step, replaced(ids.error().message, about_rank(step.id, step.rank), ""));  // warn() names the step
  return {};
}

}  // namespace bootstrap
