// The step on this node: its state, the hooks around task_init, and heap for user_init if memory is locked.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/step_on_node.h"

#include <sys/resource.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "core/util/text.h"
#include "probe/files.h"
#include "slurmstepd/node_reports.h"

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
  if (process) NodeReports::current().note_task(*process);
  auto* const planned = std::get_if<Planned>(&outcome_);
  if (planned == nullptr || !planned->plan.gpus || !task || !process) return kAccepted;
  const auto& facts = planned->facts;
  if (*task >= facts.ranks_here.size()) return kAccepted;
  const auto local_rank = facts.layout.place(facts.ranks_here[*task]).local_rank;
  planned->gpu_order.note_task(*planned->plan.gpus, local_rank, *process);
  return kAccepted;
}

int StepOnNode::task_exit(spank_t spank) {
  const auto task = item(spank, S_TASK_ID);
  const auto status = item(spank, S_TASK_EXIT_STATUS);
  if (!task || !status) return kAccepted;
  if (std::holds_alternative<Refused>(outcome_) && *status != 0) {
    NodeReports::current().send({.host = "-", .is_refused = true});
  }
  const auto* const planned = std::get_if<Planned>(&outcome_);
  if (planned == nullptr || *task >= planned->facts.ranks_here.size()) return kAccepted;
  NodeReports::current().note_end(*task, static_cast<std::int32_t>(*status));
  const auto& layout = planned->facts.layout;
  if (layout.size() == 1) return kAccepted;  // srun's own line is enough
  const auto& place = layout.place(planned->facts.ranks_here[*task]);
  NodeReports::current().send({.rank = place.rank,
                               .local_rank = place.local_rank,
                               .host = layout.host_of(place.rank),
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

// 2 MiB at most.
std::array<void*, 32> blocks{};
void* behind_them = nullptr;  // never freed: memory that is freed at the end of the heap goes back to the kernel, too

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
