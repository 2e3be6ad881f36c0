// The step on this node: its state, the hooks behind task_init, and heap for user_init where memory is locked.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/step_on_node.h"

#include <sys/resource.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {

StepOnNode& StepOnNode::current() {
  static auto* const step = new StepOnNode;  // never freed: see spank_options.cc
  return *step;
}

int StepOnNode::fail_all_tasks(bool user_knows) noexcept {
  is_broken_ = true;
  user_knows_ = user_knows;
  return kAccepted;
}

int StepOnNode::task_post_fork(spank_t spank) {
  const auto task = item(spank, S_TASK_ID);
  const auto process = item<pid_t>(spank, S_TASK_PID);
  if (process) failure_sender_.note_task(*process);
  if (!plan_ || !plan_->gpus || !task || !process || *task >= facts_->local_ranks.size()) return kAccepted;
  gpu_order_.note_task(*plan_->gpus, facts_->layout.place(facts_->local_ranks[*task]).local_rank, *process);
  return kAccepted;
}

int StepOnNode::task_exit(spank_t spank) {
  const auto task = item(spank, S_TASK_ID);
  const auto status = item(spank, S_TASK_EXIT_STATUS);
  if (!task || !status) return kAccepted;
  if (error_ && *status != 0) failure_sender_.send({.local_rank = *task, .host = "-", .is_refused = true});
  if (!plan_ || *task >= facts_->local_ranks.size()) return kAccepted;
  const auto& place = facts_->layout.place(facts_->local_ranks[*task]);
  if (facts_->layout.size() == 1) return kAccepted;  // srun's own line is enough
  failure_sender_.send({.rank = place.rank,
                        .local_rank = place.local_rank,
                        .host = facts_->layout.host_of(place.rank),
                        .wait_status = static_cast<std::int32_t>(*status)});
  return kAccepted;
}

int StepOnNode::end() {
  ports_.release();
  return kAccepted;
}

namespace {

// A larger block would be a mapping of its own, which goes back to the kernel when it is freed.
constexpr std::size_t kBlock = std::size_t{64} << 10;
constexpr std::size_t kOfSlurm = 4;  // blocks

// 2 MiB, of which a step of 8,000 ranks takes 0.6.
std::array<void*, 32> blocks{};
void* behind_them = nullptr;  // stays: what is freed at the end of the heap goes back to the kernel, too

bool is_memory_locked() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  const auto status = FileTree("/").read("proc/self/status");
  for (const auto line : split(status, '\n')) {
    if (line.starts_with("VmLck:")) return line.find_first_of("123456789") != std::string_view::npos;
  }
  return false;
}

void release(std::size_t first, std::size_t end) noexcept {
  for (auto i = first; i < end; ++i) {
    std::free(blocks[i]);
    blocks[i] = nullptr;
  }
}

}  // namespace

void take_heap_reserve() {
  if (behind_them != nullptr || !is_memory_locked()) return;
  for (auto& block : blocks) block = std::malloc(kBlock);
  behind_them = std::malloc(1);
}

void release_heap_for_us() noexcept { release(kOfSlurm, blocks.size()); }
void release_heap_for_slurm() noexcept { release(0, kOfSlurm); }

}  // namespace bootstrap
