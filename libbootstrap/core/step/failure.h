// A task that failed: one line of text from its node to srun, and the sentence about the first failure of a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/settings/variables.h"
#include "core/step/rank_layout.h"
#include "core/util/records.h"
#include "core/util/text.h"

namespace bootstrap {

// srun sends the nodes its UDP port for failures, and the token of each report. Tasks do not see it. Like all variables
// that srun adds, its name starts with SLURM_, which carries it through --export=NONE.
struct FailureAddress {
  std::uint16_t port = 0;
  std::uint64_t token = 0;  // random: only processes that can read the step's environment can report to srun

  bool operator==(const FailureAddress&) const = default;
};

inline auto fields_of(FailureAddress& address) { return std::tie(address.port, address.token); }
std::optional<FailureAddress> read_failure_address(std::string_view text);

struct Failure {
  Rank rank = 0;
  std::uint32_t local_rank = 0;
  std::string host;
  std::int32_t wait_status = 0;    // as of wait(2)
  std::uint64_t milliseconds = 0;  // since the node began to start the step
  bool is_out_of_memory = false;   // the kernel ended a process of the step there because it was out of memory
  bool is_outlived = false;        // other tasks of that node went on: they were not ended together

  bool is_refused = false;  // the node could not set its tasks up, has reported why, and started none

  bool operator==(const Failure&) const = default;
};
inline auto fields_of(Failure& failure) {
  return std::tie(failure.rank, failure.local_rank, failure.host, failure.wait_status, failure.milliseconds,
                  failure.is_out_of_memory, failure.is_outlived, failure.is_refused);
}

// The beginning of each datagram with this token. Its length is the same for all tokens, and a multiple of four bytes,
// so that a filter in the kernel can compare it.
std::string failure_prefix(std::uint64_t token);

inline constexpr std::size_t kMaxReportText = 1000;  // one datagram, below any network's limit

// A failure, or a report of core/step/receipts.h. `token`: that of FailureAddress.
template <class Report>
std::string write_report(const Report& report, std::uint64_t token) {
  return cat({failure_prefix(token), write_record(report)});
}

// Returns nullopt if the text has another token, or is another kind of report, which has another number of fields.
template <class Report>
std::optional<Report> read_report(std::string_view text, std::uint64_t token) {
  const auto prefix = failure_prefix(token);
  if (text.size() > kMaxReportText || !text.starts_with(prefix)) return std::nullopt;
  return read_record<Report>(text.substr(prefix.size()));
}

// True if the task, or a shell's program, ended by a signal with which Slurm, users and terminals end or notify
// programs: that task has not failed.
bool is_ended_on_request(const Failure& failure);
// True for exit code 0: no failure, but other tasks may wait for this one in vain.
bool is_success(const Failure& failure);
// True if SIGKILL ended the task, and the kernel shows no lack of memory: Slurm ends steps this way, too.
bool is_killed(const Failure& failure);

// True for a program that reports its own errors, by its command line: `slurm-bootstrap`, but for its command `run`,
// which becomes a program of the user's.
bool reports_for_itself(std::span<const std::string> command);

std::string exit_cause(const Failure& failure);    // "exit code 1"
std::string failing_task(const Failure& failure);  // "task 5 (node002, local rank 1)"
std::string failure_time(const Failure& failure);  // "3.2 s after the step began"

class FailureHistory {
 public:
  explicit FailureHistory(std::uint32_t tasks) : tasks_(tasks) {}

  // `now`: milliseconds of any clock that does not go back. A success before the first failure is part of its sentence.
  void add(const Failure& failure, std::uint64_t now);

  // The job was ended from outside before a task failed, so no report is a failure any more.
  void drop_all() { is_dropped_ = true; }

  // When the first failure arrived; nullopt: there is none.
  std::optional<std::uint64_t> first_arrival() const;

  // "2:256" of the first failure: its rank, or "all" if most failed alike, and its status. Equal if it fails again.
  std::string first_cause() const;

  // How the step failed, in one sentence without a full stop; empty if it is not certain that a task failed by itself.
  // It is certain if a task was killed and others still run.
  std::string sentence(bool others_run) const;

 private:
  struct Arrival {
    Failure failure;
    std::uint64_t at;
  };

  std::uint32_t count_alike() const;
  std::string describe_finished() const;

  std::uint32_t tasks_;
  bool is_dropped_ = false;
  std::vector<Arrival> arrivals_;
  std::vector<Failure> finished_;  // successes before the first failure
};

}  // namespace bootstrap
