// In srun: receives what the nodes report, names the first failure and the nodes that have not confirmed their tasks,
// and ends a step that is to end.
// SPDX-License-Identifier: Apache-2.0
#include "srun/report_receiver.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "core/settings/variables.h"
#include "core/step/failure.h"
#include "core/step/receipts.h"
#include "core/util/records.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/process_state.h"
#include "spank_api.h"
#include "srun/report_socket.h"
#include "srun/slurmctld_calls.h"
#include "srun/srun_facts.h"

namespace bootstrap {
namespace {

using Milliseconds = std::uint64_t;

constexpr Milliseconds kSecond = 1000;
constexpr Milliseconds kGathering = 150;             // for the failures of one moment
constexpr Milliseconds kUnaskedWait = 10 * kSecond;  // until ranks that still run are worth a line
constexpr Milliseconds kTimeToSave = 10 * kSecond;   // from SIGTERM to SIGKILL, as Slurm's KillWait
constexpr Milliseconds kLookForThread = 100;  // srun's thread for signals starts at about the same time as this one
constexpr Milliseconds kLongestLook = 3 * kSecond;
constexpr int kMostFailedWaits = 100;
constexpr Milliseconds kLongestRead = 100;       // then the receiver looks at what is due
constexpr Milliseconds kTimeToRefuse = kSecond;  // for the nodes to end the tasks of a refused step themselves
constexpr std::chrono::seconds kLongestEnd{2};

int supervisor = -1;  // the socket of `slurm-bootstrap supervise`; -1: it did not start this srun

// One message each. That process may have ended.
void tell_supervisor(std::string_view text) {
  if (supervisor >= 0) (void)::sendto(supervisor, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
}

class ReportReceiver {
 public:
  ReportReceiver(ReportPolicy policy, ReportSocket socket)
      : policy_(std::move(policy)), socket_(std::move(socket)), history_(policy_.tasks), receipts_(policy_.components) {
    if (policy_.is_refused) refuse_at_ = kTimeToRefuse;
  }

  void run() {
    bool goes_on = true;
    bool is_all_read = true;
    while (goes_on) {
      wait();
      goes_on = !is_ending_ && failed_waits_ <= kMostFailedWaits;
      if (is_looking_) is_looking_ = !signals_.find() && now() < kLongestLook;
      is_all_read = receive_all();
      if (goes_on) act();
    }
    if (is_all_read && !is_ended_by_srun_ && !signals_.was_signalled() && !kill_at_) act_on_receipts(true);
    if (is_reported_ || !history_.first_arrival()) return;
    if (!was_job_looked_at_) (void)is_job_going_on();
    const auto sentence = history_.sentence(false);
    tell(sentence);
    if (!sentence.empty()) log_warning(step(), sentence);
  }

  // From srun's own thread.
  void end() {
    is_ending_ = true;
    socket_.wake();
  }

 private:
  std::string step() const { return to_string(policy_.id); }

  Milliseconds now() const {
    const auto since = std::chrono::steady_clock::now() - start_;
    return static_cast<Milliseconds>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
  }

  // Until act() has something to do, as poll(2) takes it.
  int wait_for() const {
    constexpr Milliseconds kForever = UINT64_MAX;
    auto at = is_looking_ ? now() + kLookForThread : kForever;
    const auto first = history_.first_arrival();
    if (first && !is_reported_) {
      at = std::min(at, was_job_looked_at_ ? std::max(*first + patience(), ask_again_at_) : *first + kGathering);
    }
    for (const auto& due : {kill_at_, refuse_at_, receipts_.next_look()}) at = std::min(at, due.value_or(kForever));
    if (at == kForever) return -1;
    const auto before = now();
    return at > before ? static_cast<int>(std::min<Milliseconds>(at - before, INT32_MAX)) : 0;
  }

  void wait() {
    pollfd event{socket_.descriptor(), POLLIN, 0};
    failed_waits_ = ::poll(&event, 1, wait_for()) >= 0 ? 0 : failed_waits_ + 1;
  }

  // In the order of arrival, which for srun is the order in which the tasks failed. Processes of the step's user may
  // send without end: returns false if some may be left.
  bool receive_all() {
    const auto until = now() + kLongestRead;
    while (const auto received = socket_.receive(!receipts_.has_passed_elsewhere())) {
      if (const auto* const failure = std::get_if<Failure>(&received->report)) take(*failure);
      if (const auto* const report = std::get_if<NodeReport>(&received->report)) take(*report, received->is_elsewhere);
      if (now() >= until) return false;
    }
    return true;
  }

  void take(const Failure& failure) {
    // srun receives a signal before it passes anything on to the tasks.
    is_ended_by_srun_ = is_ended_by_srun_ || signals_.was_signalled();
    if (failure.is_refused) {
      if (policy_.is_asked) end_step();  // its node has printed why
    } else if (!is_ended_by_srun_) {
      history_.add(failure, now());
    }
  }

  void take(const NodeReport& report, bool is_elsewhere) {
    receipts_.add(report, is_elsewhere, now());
    // Its tasks are about to print why, and to end.
    if (report.kind != NodeReport::Kind::kRefused || !policy_.is_asked || refuse_at_) return;
    refuse_at_ = now() + kTimeToRefuse;
    refusal_ = cat({report.host, " refuses the step: ", report.reason});
  }

  // Also false if slurmctld does not answer: srun may be waiting for nothing else.
  bool is_job_going_on() {
    was_job_looked_at_ = true;
    const auto is_ended = is_job_ended_by_others(policy_.jobs.front());
    if (is_ended == true) history_.drop_all();
    return is_ended == false;
  }

  void act() {
    if (kill_at_ && now() >= *kill_at_) {
      kill_at_.reset();
      send_signal(SIGKILL);
    }
    if (refuse_at_ && now() >= *refuse_at_) end_refused();
    act_on_failures();
    if (const auto due = receipts_.next_look(); due && now() >= *due) act_on_receipts(false);
  }

  void act_on_failures() {
    const auto first = history_.first_arrival();
    if (is_reported_ || !first) return;
    if (!was_job_looked_at_ && now() >= *first + kGathering && is_job_going_on()) tell(history_.sentence(false));
    if (now() < *first + patience() || now() < ask_again_at_) return;
    if (!is_job_going_on()) {
      ask_again_at_ = now() + kUnaskedWait;
      return;
    }
    is_reported_ = true;
    tell(history_.sentence(true));
    if (ends_step()) return end_after_grace();
    if (is_ended_by_srun_ || signals_.was_signalled()) return;
    log_warning(step(),
                cat({history_.sentence(true), "; other tasks still run; look at them with: slurm-bootstrap status ",
                     step(), "; end them with: scancel ", step()}));
  }

  // Sends the cause, by which a repeated failure is recognised, the time since the failure, and the sentence.
  void tell(const std::string& sentence) {
    if (sentence.empty() || std::exchange(is_told_, true)) return;
    tell_supervisor(
        cat({history_.first_cause(), "\t", std::to_string(now() - *history_.first_arrival()), "\t", sentence}));
  }

  // Silence never ends a step: a firewall, a Prolog and a slow node are silent, too.
  void act_on_receipts(bool is_last) {
    const auto started = started_tasks();
    const auto has_started = [&](Rank rank) { return started && rank < started->size() && (*started)[rank]; };
    for (const auto& sentence : receipts_.look(now(), has_started, is_last)) log_warning(step(), sentence);
    if (const auto note = receipts_.note_silence(now()); !note.empty()) log_verbose(step(), note);
  }

  // A node without the plugin, or with another plugin that starts the program first, runs the refused program.
  void end_refused() {
    refuse_at_ = now() + kTimeToRefuse;
    const auto started = started_tasks();
    const bool is_running = !started || std::find(started->begin(), started->end(), true) != started->end();
    if (refusal_.empty() && !std::exchange(was_running_, is_running)) return;
    refuse_at_.reset();
    if (kill_at_ || is_reported_) return;
    log_error(step(),
              cat({refusal_.empty() ? "srun refused the step" : refusal_,
                   "; a node has started its tasks anyway, because another plugin starts the program "
                   "first there, or the plugin's line is missing in plugstack.conf; the plugin ends the step"}));
    end_step();
  }

  void end_after_grace() {
    log_error(step(), cat({history_.sentence(true), "; the plugin ends the step now, ", std::to_string(policy_.grace),
                           " s after the failure (--bootstrap-grace)"}));
    end_step();
  }

  void end_step() {
    if (kill_at_) return;
    is_reported_ = true;
    kill_at_ = now() + kTimeToSave;
    send_signal(SIGTERM);
  }

  void send_signal(int signal) {
    for (const auto job : policy_.jobs) {
      const auto error = signal_step(job, policy_.id.step, signal);
      if (!error) continue;
      log_error(step(), cat({"cannot send signal ", std::to_string(signal), " to the tasks: slurmctld returned error ",
                             std::to_string(*error), "; end them with: scancel ", step()}));
    }
  }

  // Until something is done about the first failure.
  Milliseconds patience() const { return ends_step() ? policy_.grace * kSecond : kUnaskedWait; }
  bool ends_step() const { return policy_.is_asked && policy_.grace != 0; }

  ReportPolicy policy_;
  ReportSocket socket_;
  std::atomic<bool> is_ending_{false};

  // The thread's own.
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  SignalThread signals_{"/proc/self/task/"};
  bool is_looking_ = true;  // for srun's thread that waits for signals
  FailureHistory history_;
  Receipts receipts_;
  bool was_job_looked_at_ = false;
  Milliseconds ask_again_at_ = 0;
  bool is_ended_by_srun_ = false;  // later failures follow from that
  bool is_reported_ = false;
  bool is_told_ = false;                   // to the supervisor
  int failed_waits_ = 0;                   // one after the other: a host without memory must not keep this thread busy
  std::optional<Milliseconds> refuse_at_;  // a refused step that still runs then is ended
  std::string refusal_;                    // a node's; empty: srun's own
  bool was_running_ = false;               // tasks of a step that srun refused
  std::optional<Milliseconds> kill_at_;    // SIGTERM was sent
};

struct RunningReceiver {
  std::shared_ptr<ReportReceiver> receiver;
  AbandonableThread thread;
};

RunningReceiver* the_receiver = nullptr;  // freed when its thread has ended

}  // namespace

// A variable that is left over from another process names no socket of this one.
void find_supervisor() {
  const char* const text = std::getenv(std::string(kSupervisorVariable).c_str());
  const auto fields = split(text == nullptr ? "" : text, ':');
  const auto descriptor = parse_unsigned<std::uint32_t>(fields.front(), INT32_MAX);
  struct stat found {};
  if (fields.size() != 2 || !descriptor || ::fstat(static_cast<int>(*descriptor), &found) != 0) return;
  if (!S_ISSOCK(found.st_mode) || std::to_string(found.st_ino) != fields.back()) return;
  supervisor = static_cast<int>(*descriptor);
  (void)::fcntl(supervisor, F_SETFD, FD_CLOEXEC);
}

void start_report_receiver(const ReportPolicy& policy) {
  // For a single unasked task srun's own line is enough.
  if (the_receiver != nullptr || (policy.tasks < 2 && !policy.is_asked)) return;
  auto socket = ReportSocket::open();
  if (!socket.is_open()) return;
  std::size_t nodes = 0;
  for (const auto& component : policy.components) nodes += component.tasks_per_node.size();
  if (!policy.is_asked && !has_spare_descriptors(socket.descriptor(), nodes)) return;
  const auto address = write_record(socket.address());
  auto running = std::make_unique<RunningReceiver>();
  running->receiver = std::make_shared<ReportReceiver>(policy, std::move(socket));
  const auto run = [receiver = running->receiver] {
    (void)guard("its receiver of reports", accept, [&] {
      receiver->run();
      return kAccepted;
    });
  };
  if (!running->thread.start(run)) return;
  the_receiver = running.release();
  tell_supervisor("");  // failures are seen
  ::setenv(std::string(kFailureVariable).c_str(), address.c_str(), 1);
}

int end_report_receiver() {
  const std::unique_ptr<RunningReceiver> running(std::exchange(the_receiver, nullptr));
  if (running == nullptr) return kAccepted;
  running->receiver->end();
  // A thread that still waits for slurmctld goes on alone, and keeps what it uses.
  (void)running->thread.wait_until(std::chrono::steady_clock::now() + kLongestEnd);
  return kAccepted;
}

}  // namespace bootstrap
