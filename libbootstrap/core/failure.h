// Which rank failed first: one line of text from the node of a task that failed to srun, and srun's sentence for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/internal_variables.h"
#include "core/layout.h"

namespace bootstrap {

// From srun to the nodes: "PORT.MARK", the UDP port where it hears of failures and the mark that they carry. Not seen
// by tasks. Like all that srun adds it starts with SLURM_, which carries it through --export=NONE.
inline constexpr std::size_t kMaxFailureText = 400;  // one datagram, far below any network's limit

struct FailureAddress {
  std::uint16_t port = 0;
  std::uint64_t mark = 0;  // random: whoever cannot read the step's environment cannot tell srun anything

  bool operator==(const FailureAddress&) const = default;
};

std::string write_failure_address(const FailureAddress& address);
std::optional<FailureAddress> read_failure_address(std::string_view text);

struct Failure {
  std::string step;  // "12.0"
  Rank rank = 0;
  std::uint32_t local_rank = 0;
  std::string host;
  std::int32_t wait_status = 0;    // as of wait(2)
  std::uint64_t milliseconds = 0;  // since the node began to start the step

  bool operator==(const Failure&) const = default;
};

std::string write_failure(const Failure& failure, std::uint64_t mark);
std::optional<Failure> read_failure(std::string_view text, std::uint64_t mark);

// A task that was told to end, by scancel or a time limit, has not failed.
bool is_told_to_end(std::int32_t wait_status);

// "job 12.0: rank 5 (node002, local rank 1) was the first to fail: exit code 1, 3.2 s after the step began".
std::string failure_sentence(const Failure& failure);

}  // namespace bootstrap
