// What a process tells the other ranks of an NCCL call in which it waits, or in which it has failed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/rank_layout.h"

namespace bootstrap {

struct CallAttendance {
  int version = 0;                   // of its NCCL, 22809 for 2.28.9; 0 when unknown
  std::vector<std::uint32_t> ranks;  // in the communicator; several where one process has several
  std::vector<Rank> ended;           // ranks of the step on its node whose tasks have ended
  std::string failure;               // NCCL's sentence; empty: it waits

  bool operator==(const CallAttendance&) const = default;
};

// One line of text.
std::string write_attendance(const CallAttendance& attendance);
std::optional<CallAttendance> read_attendance(std::string_view text);

}  // namespace bootstrap
