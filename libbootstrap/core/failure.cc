// Which rank failed first: one line of text from the node of a task that failed to srun, and srun's sentence for it.
// SPDX-License-Identifier: Apache-2.0
#include "core/failure.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/step_id.h"
#include "core/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kMagic = "bootstrap-failure-1";
constexpr int kHexadecimal = 16;

// wait(2): the low seven bits are the signal, the byte above is the exit code. <sys/wait.h> has it as macros.
constexpr std::int32_t signal_of(std::int32_t status) { return status & 0x7f; }
constexpr std::int32_t code_of(std::int32_t status) { return (status >> 8) & 0xff; }
constexpr std::int32_t kSigterm = 15;
constexpr std::int32_t kSigkill = 9;

constexpr std::array<std::string_view, 32> kSignals{
    "",          "SIGHUP",  "SIGINT",    "SIGQUIT", "SIGILL",   "SIGTRAP", "SIGABRT", "SIGBUS",
    "SIGFPE",    "SIGKILL", "SIGUSR1",   "SIGSEGV", "SIGUSR2",  "SIGPIPE", "SIGALRM", "SIGTERM",
    "SIGSTKFLT", "SIGCHLD", "SIGCONT",   "SIGSTOP", "SIGTSTP",  "SIGTTIN", "SIGTTOU", "SIGURG",
    "SIGXCPU",   "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO",   "SIGPWR",  "SIGSYS"};  // by number on Linux

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 16> digits;
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value, kHexadecimal).ptr};
}

std::optional<std::uint64_t> parse_hexadecimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, kHexadecimal);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// What is printed in the user's terminal: no spaces and nothing that a terminal would act on.
bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 255 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

std::string cause(std::int32_t status) {
  const auto signal = signal_of(status);
  if (signal == 0) return cat({"exit code ", std::to_string(code_of(status))});
  const auto number = static_cast<std::size_t>(signal);
  const auto name = number < kSignals.size() ? cat({" (", kSignals[number], ")"}) : std::string();
  const auto* const hint = signal == kSigkill ? ", which is what happens when memory runs out" : "";
  return cat({"killed by signal ", std::to_string(signal), name, hint});
}

}  // namespace

std::string write_failure_address(const FailureAddress& address) {
  return cat({std::to_string(address.port), ".", hexadecimal(address.mark)});
}

std::optional<FailureAddress> read_failure_address(std::string_view text) {
  const auto dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto port = parse_unsigned(text.substr(0, dot), 65535);
  const auto mark = parse_hexadecimal(text.substr(dot + 1));
  if (!port || *port == 0 || !mark) return std::nullopt;
  return FailureAddress{static_cast<std::uint16_t>(*port), *mark};
}

std::string write_failure(const Failure& failure, std::uint64_t mark) {
  return cat({kMagic, " ", hexadecimal(mark), " ", failure.step, " ", std::to_string(failure.rank), " ",
              std::to_string(failure.local_rank), " ", failure.host, " ",
              std::to_string(static_cast<std::uint32_t>(failure.wait_status)), " ",
              std::to_string(failure.milliseconds)});
}

std::optional<Failure> read_failure(std::string_view text, std::uint64_t mark) {
  if (text.size() > kMaxFailureText) return std::nullopt;
  const auto fields = split(text, ' ');
  if (fields.size() != 8 || fields[0] != kMagic || parse_hexadecimal(fields[1]) != mark) return std::nullopt;
  const auto rank = parse_unsigned(fields[3], kMaxRanks);
  const auto local_rank = parse_unsigned(fields[4], kMaxRanks);
  const auto status = parse_unsigned(fields[6], UINT32_MAX);
  const auto milliseconds = parse_unsigned(fields[7]);
  if (!is_word(fields[2]) || !rank || !local_rank || !is_word(fields[5]) || !status || !milliseconds) {
    return std::nullopt;
  }
  return Failure{.step = std::string(fields[2]),
                 .rank = static_cast<Rank>(*rank),
                 .local_rank = static_cast<std::uint32_t>(*local_rank),
                 .host = std::string(fields[5]),
                 .wait_status = static_cast<std::int32_t>(*status),
                 .milliseconds = *milliseconds};
}

bool is_told_to_end(std::int32_t wait_status) { return signal_of(wait_status) == kSigterm; }

std::string failure_sentence(const Failure& failure) {
  const auto tenths = failure.milliseconds / 100;
  return cat({step_name(failure.step), ": rank ", std::to_string(failure.rank), " (", failure.host, ", local rank ",
              std::to_string(failure.local_rank), ") was the first to fail: ", cause(failure.wait_status), ", ",
              std::to_string(tenths / 10), ".", std::to_string(tenths % 10), " s after the step began"});
}

}  // namespace bootstrap
