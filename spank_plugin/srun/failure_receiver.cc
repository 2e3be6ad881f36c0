// In srun: receives from the nodes which tasks failed, names the first one, and ends a step that was to end after it.
// SPDX-License-Identifier: Apache-2.0
#include "srun/failure_receiver.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/step/failure.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/files.h"
#include "probe/port_reservation.h"
#include "probe/process_state.h"
#include "probe/secrets.h"
#include "spank_api.h"
#include "srun/slurmctld_calls.h"

namespace bootstrap {
namespace {

std::uint32_t word_at(const std::string& text, std::size_t place) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < sizeof word; ++i) word = (word << 8) | static_cast<std::uint8_t>(text[place + i]);
  return word;
}

// The kernel drops all else before it takes a place in the queue: a flood without the token loses no
// line. A datagram that is too short is dropped by the load beyond its end. Without a filter the token is still
// looked at by who reads.
void accept_only(int socket, const std::string& prefix) {
  std::vector<sock_filter> program;
  const auto words = prefix.size() / sizeof(std::uint32_t);
  for (std::size_t i = 0; i < words; ++i) {
    const auto place = static_cast<std::uint32_t>(sizeof(udphdr) + i * sizeof(std::uint32_t));
    const auto to_the_end = static_cast<std::uint8_t>(2 * (words - i - 1) + 1);
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, place));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, word_at(prefix, i * sizeof(std::uint32_t)), 0, to_the_end));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, UINT32_MAX));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  (void)::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

}  // namespace

FailureSocket FailureSocket::open() {
  FailureSocket opened;
  const auto token = random_bits();
  if (!token) return opened;
  auto socket = open_socket(SOCK_DGRAM | SOCK_NONBLOCK);
  if (!socket.is_open()) return opened;
  accept_only(socket.get(), failure_prefix(*token));  // before there is a port to send to
  sockaddr_in6 bound{};
  socklen_t size = sizeof bound;
  if (!bind_everywhere(socket, 0)) return opened;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return opened;
  opened.socket_ = std::move(socket);
  opened.address_ = {ntohs(bound.sin6_port), *token};  // at the same place in sockaddr_in
  return opened;
}

std::optional<Failure> FailureSocket::receive() const {
  constexpr int kMostOthers = 4096;
  std::array<char, kMaxFailureText + 1> text;
  for (int others = 0; others < kMostOthers; ++others) {
    const auto size = ::recv(socket_.get(), text.data(), text.size(), 0);
    if (size < 0) return std::nullopt;
    auto failure = read_failure({text.data(), static_cast<std::size_t>(size)}, address_.token);
    if (failure) return failure;
  }
  return std::nullopt;
}

namespace {

using Milliseconds = std::uint64_t;

constexpr Milliseconds kSecond = 1000;
constexpr Milliseconds kGathering = 150;             // for the failures of one moment
constexpr Milliseconds kUnaskedWait = 10 * kSecond;  // until ranks that still run are worth a line
constexpr Milliseconds kTimeToSave = 10 * kSecond;   // from SIGTERM to SIGKILL, as Slurm's KillWait
constexpr Milliseconds kLookForThread = 100;  // srun's thread for signals starts at about the same time as this one
constexpr Milliseconds kLongestLook = 3 * kSecond;
constexpr int kMostFailedWaits = 100;
constexpr time_t kLongestEnd = 2;  // seconds

class FailureReceiver {
 public:
  FailureReceiver(FailurePolicy policy, FailureSocket socket, Descriptor stop)
      : policy_(std::move(policy)), socket_(std::move(socket)), stop_(std::move(stop)), history_(policy_.tasks) {}

  bool start();
  bool end();  // false: the thread still waits for slurmctld, and everything here is still its own
  void run();

 private:
  Milliseconds now() const;
  Milliseconds wait_for() const;
  bool wait();
  void receive_all();
  void act();
  void end_after_grace();
  void end_step();
  void send_signal(int signal);
  bool is_job_going_on();
  std::string step() const { return to_string(policy_.id); }

  // Until something is done about the first failure.
  Milliseconds patience() const { return ends_step() ? *policy_.grace * kSecond : kUnaskedWait; }
  bool ends_step() const { return policy_.is_asked && policy_.grace; }

  FailurePolicy policy_;
  FailureSocket socket_;
  Descriptor stop_;
  pthread_t thread_{};

  // The thread's own.
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  SignalThread signals_{"/proc/self/task/"};
  bool is_looking_ = true;  // for srun's thread that waits for signals
  FailureHistory history_;
  bool was_job_looked_at_ = false;
  Milliseconds ask_again_at_ = 0;
  bool is_ended_by_srun_ = false;  // what fails from now on fails for that
  bool is_reported_ = false;
  int failed_waits_ = 0;                 // one after the other: a host without memory must not keep this thread busy
  std::optional<Milliseconds> kill_at_;  // SIGTERM was sent
};

extern "C" void* run_receiver(void* receiver) {
  (void)guard("its failure receiver", accept, [&] {
    static_cast<FailureReceiver*>(receiver)->run();
    return kAccepted;
  });
  return nullptr;
}

bool FailureReceiver::start() { return start_thread(thread_, run_receiver, this) == 0; }

bool FailureReceiver::end() {
  (void)::eventfd_write(stop_.get(), 1);
  timespec until{};
  (void)::clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kLongestEnd;
  return ::pthread_timedjoin_np(thread_, nullptr, &until) == 0;
}

Milliseconds FailureReceiver::now() const {
  const auto since = std::chrono::steady_clock::now() - start_;
  return static_cast<Milliseconds>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

void FailureReceiver::run() {
  bool goes_on = true;
  while (goes_on) {
    goes_on = wait();
    if (is_looking_) is_looking_ = !signals_.find() && now() < kLongestLook;
    receive_all();
    if (goes_on) act();
  }
  if (is_reported_ || !history_.first_arrival()) return;
  if (!was_job_looked_at_) (void)is_job_going_on();
  const auto sentence = history_.sentence(false);
  if (!sentence.empty()) log_warning(step(), sentence);
}

// When act() has something to do, from now on.
Milliseconds FailureReceiver::wait_for() const {
  constexpr Milliseconds kForever = UINT64_MAX;
  auto at = is_looking_ ? now() + kLookForThread : kForever;
  const auto first = history_.first_arrival();
  if (first && !is_reported_) {
    at = std::min(at, was_job_looked_at_ ? std::max(*first + patience(), ask_again_at_) : *first + kGathering);
  }
  if (kill_at_) at = std::min(at, *kill_at_);
  if (at == kForever) return kForever;
  const auto before = now();
  return at > before ? at - before : 0;
}

// False: srun has come to its last hook.
bool FailureReceiver::wait() {
  std::array<pollfd, 2> events{{{socket_.descriptor(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  const auto wait = wait_for();
  const auto timeout = wait == UINT64_MAX ? -1 : static_cast<int>(std::min<Milliseconds>(wait, INT32_MAX));
  const bool is_woken = ::poll(events.data(), events.size(), timeout) >= 0;
  failed_waits_ = is_woken ? 0 : failed_waits_ + 1;
  return failed_waits_ <= kMostFailedWaits && events[1].revents == 0;
}

// In the order of arrival, which for srun is the order in which the tasks failed.
void FailureReceiver::receive_all() {
  while (const auto failure = socket_.receive()) {
    // srun receives a signal before it passes anything on to the tasks.
    is_ended_by_srun_ = is_ended_by_srun_ || signals_.was_signalled();
    if (failure->is_refused) {
      if (policy_.is_asked) end_step();  // its node has printed why
    } else if (!is_ended_by_srun_) {
      history_.add(*failure, now());
    }
  }
}

// False also where slurmctld does not answer: srun may be waiting for nothing else.
bool FailureReceiver::is_job_going_on() {
  was_job_looked_at_ = true;
  const auto is_ended = is_job_ended_by_others(policy_.jobs.front());
  if (is_ended == true) history_.drop_all();
  return is_ended == false;
}

void FailureReceiver::act() {
  if (kill_at_ && now() >= *kill_at_) {
    kill_at_.reset();
    send_signal(SIGKILL);
  }
  const auto first = history_.first_arrival();
  if (is_reported_ || !first) return;
  if (!was_job_looked_at_ && now() >= *first + kGathering) (void)is_job_going_on();
  if (now() < *first + patience() || now() < ask_again_at_) return;
  if (!is_job_going_on()) {
    ask_again_at_ = now() + kUnaskedWait;
    return;
  }
  is_reported_ = true;
  if (ends_step()) return end_after_grace();
  if (is_ended_by_srun_ || signals_.was_signalled()) return;
  log_warning(step(),
              cat({history_.sentence(true), "; other tasks still run; look at them with: slurm-bootstrap status ",
                   step(), "; end them with: scancel ", step()}));
}

void FailureReceiver::end_after_grace() {
  log_error(step(), cat({history_.sentence(true), "; the plugin ends the step now, ", std::to_string(*policy_.grace),
                         " s after the failure (--bootstrap-grace)"}));
  end_step();
}

void FailureReceiver::end_step() {
  if (kill_at_) return;
  is_reported_ = true;
  kill_at_ = now() + kTimeToSave;
  send_signal(SIGTERM);
}

void FailureReceiver::send_signal(int signal) {
  for (const auto job : policy_.jobs) {
    const auto error = signal_step(job, policy_.id.step, signal);
    if (!error) continue;
    log_error(step(), cat({"cannot send signal ", std::to_string(signal), " to the tasks: slurmctld returned error ",
                           std::to_string(*error), "; end them with: scancel ", step()}));
  }
}

FailureReceiver* the_receiver = nullptr;  // freed when its thread has ended

}  // namespace

void start_failure_receiver(const FailurePolicy& policy) {
  // For a single task srun's own line is enough.
  if (the_receiver != nullptr || policy.reports_for_itself || policy.tasks < 2 || policy.jobs.empty()) return;
  auto socket = FailureSocket::open();
  Descriptor stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!socket.is_open() || !stop.is_open()) return;
  const auto address = write_failure_address(socket.address());
  auto receiver = std::make_unique<FailureReceiver>(policy, std::move(socket), std::move(stop));
  if (!receiver->start()) return;
  the_receiver = receiver.release();
  ::setenv(std::string(kFailureVariable).c_str(), address.c_str(), 1);
}

int end_failure_receiver() {
  auto* const receiver = std::exchange(the_receiver, nullptr);
  if (receiver != nullptr && receiver->end()) delete receiver;
  return kAccepted;
}

}  // namespace bootstrap
