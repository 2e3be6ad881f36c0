// A rank in a check: finds its way to rank 0, as a program would, and stays in touch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/step/step_id.h"
#include "tools/check/check_report.h"
#include "tools/check/check_socket.h"

namespace bootstrap {

// Ports of the host of rank 0 through which it can be told that the ranks cannot meet where they should. Computed, so
// that everybody knows them, and outside of what the plugin and Linux choose ports from.
std::array<std::uint16_t, 3> side_ports(const StepId& id);

// A connection to rank 0, as a rank has it.
class CheckClient {
 public:
  CheckClient(Descriptor socket, std::string step_tag, Rank rank)
      : socket_(std::move(socket)), step_tag_(std::move(step_tag)), rank_(rank) {}

  bool send(std::string_view word, std::string_view body, Deadline deadline);
  // Nothing when the other side has ended the connection, is not of this step, or the deadline has passed.
  std::optional<CheckLine> receive(Deadline deadline);

 private:
  Descriptor socket_;
  std::string step_tag_;
  Rank rank_;
  std::string received_;
};

// The way to MASTER_ADDR:MASTER_PORT of the report, or through a side port of `host`, on which rank 0 is; what there
// is to say of it gets into the report. Tries again until the deadline, since rank 0 may start later. The error is the
// reason alone: "Connection refused (10.1.0.1)".
Result<CheckClient> find_rank_zero(CheckReport& report, const StepId& id, const std::string& host, Deadline deadline);

}  // namespace bootstrap
