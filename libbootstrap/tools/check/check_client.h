// A rank other than 0 in a check: finds its way to rank 0, as a program would, and stays in touch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/step/step_id.h"
#include "tools/check/check_connection.h"
#include "tools/check/check_report.h"

namespace bootstrap {

// Ports of the host of rank 0 through which it can be told that the ranks cannot meet where they should. Computed, so
// that everybody knows them, and outside of what the plugin and Linux choose ports from.
std::array<std::uint16_t, 3> side_doors(const StepId& id);

struct MeetingPlace {
  std::string address;  // MASTER_ADDR
  std::uint16_t port = 0;
  std::string home;  // host of rank 0 by the layout
  std::array<std::uint16_t, 3> side_doors{};
};

// The way that was found; a report is completed by it.
struct CheckVisit {
  explicit CheckVisit(CheckTalk connection) : talk(std::move(connection)) {}

  CheckTalk talk;
  Reach reach = Reach::kReached;  // how MASTER_ADDR:MASTER_PORT answered, whichever way was taken
  std::string trouble;
  std::string target;
  std::string interface;
  std::uint64_t round_trip_us = 0;
  std::int64_t clock_offset_us = 0;
  std::uint64_t clock_error_us = 0;
};

// Tries again until the deadline, since rank 0 may start later than we. The error is the reason alone: "connection
// refused by 10.1.0.1".
Result<CheckVisit> visit_rank_zero(const MeetingPlace& place, const Hello& hello, Deadline deadline);

// Rank 0's own way to itself, as its program will go it: whether MASTER_ADDR is this host.
struct OwnWay {
  Reach reach = Reach::kReached;
  std::string trouble;
  std::string target;
};
OwnWay try_own_way(const std::string& address, std::uint16_t port, bool is_listening, Deadline deadline);

void add_way(CheckReport& report, const CheckVisit& visit);

}  // namespace bootstrap
