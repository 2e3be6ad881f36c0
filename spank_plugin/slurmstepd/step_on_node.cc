// The step on this node: its state, the hooks behind task_init, and heap for user_init where memory is locked.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/step_on_node.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "core/hardware/network.h"
#include "core/util/text.h"
#include "probe/files.h"
#include "probe/process_state.h"

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
  auto* const planned = std::get_if<Planned>(&outcome_);
  if (planned == nullptr || !planned->plan.gpus || !task || !process) return kAccepted;
  const auto& facts = planned->facts;
  if (*task >= facts.local_ranks.size()) return kAccepted;
  const auto local_rank = facts.layout.place(facts.local_ranks[*task]).local_rank;
  planned->gpu_order.note_task(*planned->plan.gpus, local_rank, *process);
  return kAccepted;
}

int StepOnNode::task_exit(spank_t spank) {
  const auto task = item(spank, S_TASK_ID);
  const auto status = item(spank, S_TASK_EXIT_STATUS);
  if (!task || !status) return kAccepted;
  if (std::holds_alternative<Refused>(outcome_) && *status != 0) {
    failure_sender_.send({.local_rank = *task, .host = "-", .is_refused = true});
  }
  const auto* const planned = std::get_if<Planned>(&outcome_);
  if (planned == nullptr || *task >= planned->facts.local_ranks.size()) return kAccepted;
  const auto& layout = planned->facts.layout;
  if (layout.size() == 1) return kAccepted;  // srun's own line is enough
  const auto& place = layout.place(planned->facts.local_ranks[*task]);
  failure_sender_.send({.rank = place.rank,
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

constexpr int kTimeToKillAll = 3;  // ms
constexpr std::chrono::milliseconds kLongestKill{300};

void send_text(const std::string& text, const IpAddress& host, std::uint16_t port) {
  const bool is_ipv6 = host.bits == 128;
  const int socket = ::socket(is_ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return;
  sockaddr_in6 to6{};
  to6.sin6_family = AF_INET6;
  to6.sin6_port = htons(port);
  std::copy(host.bytes.begin(), host.bytes.end(), std::begin(to6.sin6_addr.s6_addr));
  sockaddr_in to4{};
  to4.sin_family = AF_INET;
  to4.sin_port = htons(port);
  std::copy_n(host.bytes.begin(), sizeof to4.sin_addr, reinterpret_cast<std::uint8_t*>(&to4.sin_addr));
  const auto* const to = is_ipv6 ? reinterpret_cast<const sockaddr*>(&to6) : reinterpret_cast<const sockaddr*>(&to4);
  const auto size = is_ipv6 ? sizeof to6 : sizeof to4;
  (void)::sendto(socket, text.data(), text.size(), MSG_NOSIGNAL, to, static_cast<socklen_t>(size));
  ::close(socket);
}

}  // namespace

void FailureSender::prepare(const Environment& environment) {
  start_ = std::chrono::steady_clock::now();
  to_ = read_failure_address(environment.get(kFailureVariable).value_or(""));
  host_ = environment.get("SLURM_SRUN_COMM_HOST").value_or("");
}

void FailureSender::note_task(pid_t process) {
  if (to_) tasks_.push_back(process);
}

// srun uses the answer for the first failure alone, so only the first killed task of the node gets one.
// To end a step, a thread of slurmstepd kills its tasks one after the other: within a millisecond or two, but on a busy
// node that thread waits for a processor between two of them. Slurm's PMIx kills the other tasks when one was killed,
// too, but by way of slurmctld, while all threads here are idle.
bool FailureSender::do_others_go_on(const Failure& failure) {
  if (!is_killed(failure) || has_looked_at_others_) return false;
  has_looked_at_others_ = true;
  const FileTree root("/");
  const auto goes_on = [&root](pid_t task) { return runs_on(root, task); };
  const auto one = std::find_if(tasks_.begin(), tasks_.end(), goes_on);
  if (one == tasks_.end()) return false;
  const auto until = std::chrono::steady_clock::now() + kLongestKill;
  do {
    (void)::poll(nullptr, 0, kTimeToKillAll);
    // In this order: the thread may kill that task, and be idle, between two looks.
    if (!is_another_thread_busy(root)) return goes_on(*one);
    if (!goes_on(*one)) return false;
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

void FailureSender::send(Failure failure) {
  const auto host = parse_ip_address(host_);
  auto& sent = is_success(failure) ? successes_ : failures_;
  if (!to_ || !host || sent == (is_success(failure) ? kMostSuccesses : kMostFailures)) return;
  ++sent;
  const auto since = std::chrono::steady_clock::now() - start_;
  failure.milliseconds =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
  failure.is_out_of_memory =
      !is_success(failure) && failures_ <= kMostMemoryLooks && has_lost_a_process_to_memory(FileTree("/"));
  failure.is_outlived = do_others_go_on(failure);
  send_text(write_failure(failure, to_->token), *host, to_->port);
}

namespace {

// A larger block would be a mapping of its own, which goes back to the kernel when it is freed.
constexpr std::size_t kBlock = std::size_t{64} << 10;
constexpr std::size_t kOfSlurm = 4;  // blocks

// 2 MiB at most.
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
