// A task that failed: its text from the node to srun, which failure of a step is the first, and the sentence about it.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/failure.h"

#include <algorithm>
#include <array>

#include "core/settings/settings.h"
#include "core/step/step_id.h"

namespace bootstrap {
namespace {

constexpr std::string_view kMagic = "bootstrap-failure-4";
constexpr std::size_t kTokenDigits = 16;

// wait(2): the low seven bits are the signal, the byte above is the exit code. <sys/wait.h> has it as macros.
constexpr std::int32_t signal_of(std::int32_t status) { return status & 0x7f; }
constexpr std::int32_t code_of(std::int32_t status) { return (status >> 8) & 0xff; }
constexpr std::int32_t kShellBase = 128;  // a shell whose program ended by a signal exits with 128 + its number
// The signal that ended the task, or its program below a shell; 0: none did.
constexpr std::int32_t ending_signal(std::int32_t status) {
  if (signal_of(status) != 0) return signal_of(status);
  return code_of(status) > kShellBase ? code_of(status) - kShellBase : 0;
}
constexpr std::int32_t kSigkill = 9;
constexpr std::array<std::int32_t, 8> kEndings{1, 2, 3, 10, 12, 13, 15, 24};  // HUP INT QUIT USR1 USR2 PIPE TERM XCPU

constexpr std::array<std::string_view, 32> kSignals{
    "",          "SIGHUP",  "SIGINT",    "SIGQUIT", "SIGILL",   "SIGTRAP", "SIGABRT", "SIGBUS",
    "SIGFPE",    "SIGKILL", "SIGUSR1",   "SIGSEGV", "SIGUSR2",  "SIGPIPE", "SIGALRM", "SIGTERM",
    "SIGSTKFLT", "SIGCHLD", "SIGCONT",   "SIGSTOP", "SIGTSTP",  "SIGTTIN", "SIGTTOU", "SIGURG",
    "SIGXCPU",   "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO",   "SIGPWR",  "SIGSYS"};  // by number on Linux

// Ranks that fail for the same reason fail at once. A rank whose failure makes the others fail is ahead of them: they
// need time to notice it, and to end.
constexpr std::uint64_t kAheadOfOthers = 100;    // ms
constexpr std::uint64_t kTimeOfAllAlike = 1000;  // ms, on nodes that are not equally busy

constexpr std::size_t kMostArrivals = 10000;  // enough to find the first, and whether most are alike

}  // namespace

std::optional<FailureAddress> read_failure_address(std::string_view text) {
  auto address = read_record<FailureAddress>(text);
  if (address && address->port < kMinPort) address.reset();  // slurmstepd sends as root
  return address;
}

std::string failure_prefix(std::uint64_t token) {
  static_assert((kMagic.size() + 1 + kTokenDigits) % 4 == 0);
  return cat({kMagic, " ", to_hex(token, kTokenDigits)});
}

bool is_ended_on_request(const Failure& failure) {
  return std::find(kEndings.begin(), kEndings.end(), ending_signal(failure.wait_status)) != kEndings.end();
}

bool is_success(const Failure& failure) { return failure.wait_status == 0 && !failure.is_refused; }

bool is_killed(const Failure& failure) {
  return ending_signal(failure.wait_status) == kSigkill && !failure.is_out_of_memory;
}

bool reports_for_itself(std::span<const std::string> command) {
  if (command.empty() || (command.size() > 1 && command[1] == "run")) return false;
  const std::string_view program = command.front();
  const auto slash = program.rfind('/');
  return program.substr(slash == std::string_view::npos ? 0 : slash + 1) == "slurm-bootstrap";
}

std::string exit_cause(const Failure& failure) {
  const auto signal = signal_of(failure.wait_status);
  const auto* const memory =
      failure.is_out_of_memory ? ", after the kernel killed a process there because it was out of memory" : "";
  if (signal == 0) return cat({"exit code ", std::to_string(code_of(failure.wait_status)), memory});
  const auto number = static_cast<std::size_t>(signal);
  const auto name = number < kSignals.size() ? cat({" (", kSignals[number], ")"}) : std::string();
  return cat({"killed by signal ", std::to_string(signal), name, memory});
}

std::string failing_task(const Failure& failure) {
  return cat({"task ", std::to_string(failure.rank), " (", failure.host, ", local rank ",
              std::to_string(failure.local_rank), ")"});
}

std::string failure_time(const Failure& failure) {
  const auto tenths = failure.milliseconds / 100;
  return cat({std::to_string(tenths / 10), ".", std::to_string(tenths % 10), " s after the step began"});
}

void FailureHistory::add(const Failure& failure, std::uint64_t now) {
  if (is_dropped_ || is_ended_on_request(failure) || arrivals_.size() == kMostArrivals) return;
  if (is_success(failure)) {
    if (arrivals_.empty() && finished_.size() < kMostArrivals) finished_.push_back(failure);
    return;
  }
  const auto is_same = [&](const Arrival& arrival) { return arrival.failure.rank == failure.rank; };
  if (std::any_of(arrivals_.begin(), arrivals_.end(), is_same)) return;
  arrivals_.push_back({failure, now});
}

std::optional<std::uint64_t> FailureHistory::first_arrival() const {
  if (is_dropped_ || arrivals_.empty()) return std::nullopt;
  return arrivals_.front().at;
}

// How many tasks ended as the first one did, at the same time; 0 if the first one is to be named. Those that were
// killed meanwhile do not count: with --kill-on-bad-exit srun kills all tasks that have not ended yet.
std::uint32_t FailureHistory::count_alike() const {
  const auto& first = arrivals_.front();
  std::uint32_t alike = 0;
  for (const auto& [failure, at] : arrivals_) {
    if (is_killed(failure)) continue;
    if (failure.wait_status != first.failure.wait_status || at - first.at > kTimeOfAllAlike) return 0;
    if (++alike == 2 && at - first.at > kAheadOfOthers) return 0;
  }
  return alike > 1 && 2 * alike > tasks_ ? alike : 0;
}

std::string FailureHistory::first_cause() const {
  const auto& first = arrivals_.front().failure;
  const bool is_of_most = !is_killed(first) && count_alike() != 0;
  return cat({is_of_most ? "all" : std::to_string(first.rank), ":", std::to_string(first.wait_status)});
}

// The other tasks may have failed because they waited for these.
std::string FailureHistory::describe_finished() const {
  if (finished_.empty()) return {};
  constexpr std::string_view kHow = " ended before that with exit code 0";
  if (finished_.size() == 1) return cat({"; ", failing_task(finished_.front()), kHow});
  constexpr std::size_t kMostNamed = 8;
  std::vector<Rank> named;
  for (std::size_t i = 0; i < std::min(finished_.size(), kMostNamed); ++i) named.push_back(finished_[i].rank);
  const auto more = finished_.size() - named.size();
  return cat({"; tasks ", join(named, ", "), more == 0 ? "" : cat({" and ", std::to_string(more), " more"}), kHow});
}

std::string FailureHistory::sentence(bool others_run) const {
  if (is_dropped_ || arrivals_.empty()) return {};
  const auto& first = arrivals_.front().failure;
  if (is_killed(first) && !first.is_outlived && !others_run) {
    // Slurm kills all tasks. If only one task was killed, another process killed it.
    const auto is_also_killed = [](const Arrival& arrival) { return is_killed(arrival.failure); };
    const auto killed = std::count_if(arrivals_.begin(), arrivals_.end(), is_also_killed);
    if (killed > 1 || arrivals_.size() == 1) return {};
  }
  if (const auto alike = is_killed(first) ? 0 : count_alike(); alike != 0) {
    const auto who = alike == tasks_ ? cat({"all ", std::to_string(tasks_), " tasks"})
                                     : cat({std::to_string(alike), " of ", std::to_string(tasks_), " tasks"});
    // The first task may have made the others fail within that time, so its output is worth reading.
    return cat({who, " failed in the same way, ", failing_task(first), " first: ", exit_cause(first), ", ",
                failure_time(first), describe_finished()});
  }
  return cat(
      {failing_task(first), " failed first: ", exit_cause(first), ", ", failure_time(first), describe_finished()});
}

}  // namespace bootstrap
