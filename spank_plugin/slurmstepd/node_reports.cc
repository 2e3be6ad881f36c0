// What a node reports to srun: hello, tasks that are set up or refused, and how tasks ended.
// SPDX-License-Identifier: Apache-2.0
#include "slurmstepd/node_reports.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "core/step/step_id.h"
#include "probe/process_state.h"

namespace bootstrap {
namespace {

constexpr int kTimeToKillAll = 3;  // ms
constexpr std::chrono::milliseconds kLongestKill{300};
constexpr std::uint32_t kMostTasks = 65536;  // of a node that shares memory
constexpr std::size_t kLongestReason = 400;

std::uint64_t number_of_socket(int descriptor) {
  struct stat facts {};
  return ::fstat(descriptor, &facts) == 0 && S_ISSOCK(facts.st_mode) ? facts.st_ino : 0;
}

int open_datagram_socket(const IpAddress& host) {
  return ::socket(host.bits == 128 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

}  // namespace

NodeReports& NodeReports::current() {
  static auto* const reports = new NodeReports;  // never freed: see spank_options.cc
  return *reports;
}

void NodeReports::say_hello(spank_t spank) {
  const auto step = item(spank, S_JOB_STEPID);
  const auto address = task_variable(spank, kFailureVariable);
  if (!step || !is_normal_step(*step) || !address) return;
  if (!to_) {
    const auto host = parse_ip_address(task_variable(spank, "SLURM_SRUN_COMM_HOST").value_or(""));
    if (host) to_ = read_failure_address(*address);
    if (!to_) return;
    host_ = *host;
    start_ = std::chrono::steady_clock::now();
    node_ = {.host = own_host(),
             .job = item(spank, S_JOB_ID).value_or(0),
             .slurmstepd = static_cast<std::uint32_t>(::getpid()),
             .tasks = item(spank, S_JOB_LOCAL_TASK_COUNT).value_or(0),
             .reason = {}};
    socket_ = Descriptor(open_datagram_socket(host_));
    if (socket_.is_open()) socket_number_ = number_of_socket(socket_.get());
    passed_text_ = text_of(NodeReport::Kind::kPassed);
    // Shared with all processes that slurmstepd forks. user_init may run in one that shares all memory with this one.
    if (node_.tasks != 0 && node_.tasks <= kMostTasks) {
      const auto size = (std::size_t{node_.tasks} + 1) * sizeof *passed_;
      void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (memory != MAP_FAILED) passed_ = static_cast<std::atomic<std::uint32_t>*>(memory);
    }
  }
  send_text(text_of(NodeReport::Kind::kHello));
}

std::string NodeReports::text_of(NodeReport::Kind kind, std::string_view reason) const {
  if (!to_) return {};
  auto report = node_;
  report.kind = kind;
  report.reason = reason.substr(0, kLongestReason);
  return write_report(report, to_->token);
}

void NodeReports::send_text(std::string_view text) const noexcept {
  if (!to_ || text.empty()) return;
  const bool is_own = socket_.is_open() && socket_number_ != 0 && number_of_socket(socket_.get()) == socket_number_;
  const int socket = is_own ? socket_.get() : open_datagram_socket(host_);
  if (socket < 0) return;
  const bool is_ipv6 = host_.bits == 128;
  sockaddr_in6 to6{};
  to6.sin6_family = AF_INET6;
  to6.sin6_port = htons(to_->port);
  std::copy(host_.bytes.begin(), host_.bytes.end(), std::begin(to6.sin6_addr.s6_addr));
  sockaddr_in to4{};
  to4.sin_family = AF_INET;
  to4.sin_port = htons(to_->port);
  std::copy_n(host_.bytes.begin(), sizeof to4.sin_addr, reinterpret_cast<std::uint8_t*>(&to4.sin_addr));
  const auto* const to = is_ipv6 ? reinterpret_cast<const sockaddr*>(&to6) : reinterpret_cast<const sockaddr*>(&to4);
  const auto size = is_ipv6 ? sizeof to6 : sizeof to4;
  (void)::sendto(socket, text.data(), text.size(), MSG_NOSIGNAL, to, static_cast<socklen_t>(size));
  if (!is_own) ::close(socket);
}

void NodeReports::pass_task(std::uint32_t task) const noexcept {
  if (passed_ == nullptr || task >= node_.tasks || passed_[task + 1].exchange(1) != 0) return;
  if (passed_[0].fetch_add(1) + 1 != node_.tasks) return;
  send_text(passed_text_);
  send_text(passed_text_);  // the first one may be lost
}

void NodeReports::refuse(std::string_view why) { send_text(text_of(NodeReport::Kind::kRefused, why)); }

void NodeReports::note_task(pid_t process) {
  if (to_) tasks_.push_back(process);
}

// A task that was ended on request before its turn shows nothing about the others.
void NodeReports::note_end(std::uint32_t task, std::int32_t wait_status) {
  const Failure end{.host = {}, .wait_status = wait_status};
  if (passed_ == nullptr || task >= node_.tasks || is_never_set_reported_) return;
  if (passed_[task + 1].load() != 0 || is_ended_on_request(end) || is_killed(end)) return;
  is_never_set_reported_ = true;
  send_text(text_of(NodeReport::Kind::kNeverSet));
}

// srun uses the answer only for the first failure, so only the first killed task of the node gets one. To end a step, a
// thread of slurmstepd kills its tasks one after the other: within a millisecond or two, but on a busy node that thread
// waits for a processor between two of them. Slurm's PMIx kills the other tasks when one was killed, too, but through
// slurmctld, while all threads here are idle.
bool NodeReports::do_others_go_on(const Failure& failure) {
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

void NodeReports::send(Failure failure) {
  auto& sent = is_success(failure) ? successes_ : failures_;
  if (!to_ || sent == (is_success(failure) ? kMostSuccesses : kMostFailures)) return;
  ++sent;
  const auto since = std::chrono::steady_clock::now() - start_;
  failure.milliseconds =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
  failure.is_out_of_memory =
      !is_success(failure) && failures_ <= kMostMemoryLooks && has_lost_a_process_to_memory(FileTree("/"));
  failure.is_outlived = do_others_go_on(failure);
  send_text(write_report(failure, to_->token));
}

}  // namespace bootstrap
