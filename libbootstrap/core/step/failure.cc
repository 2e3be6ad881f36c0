// A task that failed: one line of text from its node to srun, and the parts of a sentence about it.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/failure.h"

#include <algorithm>
#include <array>

#include "core/settings/settings.h"
#include "core/step/step_id.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kMagic = "bootstrap-failure-3";
constexpr std::size_t kTokenDigits = 16;
constexpr std::string_view kOutOfMemory = "out-of-memory";
constexpr std::string_view kOutlived = "outlived";
constexpr std::string_view kRefused = "refused";
constexpr std::string_view kNoMore = "-";

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

// What is printed in the user's terminal: no spaces and nothing that a terminal would act on.
bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 255 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

std::string write_failure_address(const FailureAddress& address) {
  return cat({std::to_string(address.port), ".", to_hex(address.token, kTokenDigits)});
}

std::optional<FailureAddress> read_failure_address(std::string_view text) {
  const auto dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto port = parse_unsigned<std::uint16_t>(text.substr(0, dot));
  const auto token = parse_hex(text.substr(dot + 1));
  if (!port || *port < kMinPort || !token) return std::nullopt;  // slurmstepd sends as root
  return FailureAddress{*port, *token};
}

std::string failure_prefix(std::uint64_t token) {
  static_assert((kMagic.size() + 1 + kTokenDigits) % 4 == 0);
  return cat({kMagic, " ", to_hex(token, kTokenDigits)});
}

std::string write_failure(const Failure& failure, std::uint64_t token) {
  return cat({failure_prefix(token), " ", std::to_string(failure.rank), " ", std::to_string(failure.local_rank), " ",
              failure.host, " ", std::to_string(static_cast<std::uint32_t>(failure.wait_status)), " ",
              std::to_string(failure.milliseconds), " ",
              failure.is_refused         ? kRefused
              : failure.is_out_of_memory ? kOutOfMemory
              : failure.is_outlived      ? kOutlived
                                         : kNoMore});
}

std::optional<Failure> read_failure(std::string_view text, std::uint64_t token) {
  if (text.size() > kMaxFailureText) return std::nullopt;
  const auto fields = split(text, ' ');
  if (fields.size() != 8 || fields[0] != kMagic || parse_hex(fields[1]) != token) return std::nullopt;
  const auto rank = parse_unsigned<Rank>(fields[2], kMaxRanks);
  const auto local_rank = parse_unsigned<std::uint32_t>(fields[3], kMaxRanks);
  const auto status = parse_unsigned<std::uint32_t>(fields[5]);
  const auto milliseconds = parse_unsigned(fields[6]);
  const auto is_out_of_memory = fields[7] == kOutOfMemory;
  const auto is_outlived = fields[7] == kOutlived;
  const auto is_refused = fields[7] == kRefused;
  if (!rank || !local_rank || !is_word(fields[4]) || !status || !milliseconds) return std::nullopt;
  if (!is_out_of_memory && !is_outlived && !is_refused && fields[7] != kNoMore) return std::nullopt;
  return Failure{.rank = *rank,
                 .local_rank = *local_rank,
                 .host = std::string(fields[4]),
                 .wait_status = static_cast<std::int32_t>(*status),
                 .milliseconds = *milliseconds,
                 .is_out_of_memory = is_out_of_memory,
                 .is_outlived = is_outlived,
                 .is_refused = is_refused};
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

}  // namespace bootstrap
