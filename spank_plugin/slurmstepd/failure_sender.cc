// In slurmstepd: reports to srun how a task of this node has ended.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/failure_sender.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/hardware/network.h"
#include "probe/process_state.h"

namespace bootstrap {
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

}  // namespace bootstrap
