// A rank in a check: connects to rank 0, as a program would.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_connection.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/plan/master_endpoint.h"
#include "core/util/text.h"
#include "probe/deadline.h"

namespace bootstrap {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Below Linux' default ip_local_port_range, above our default port_range.
constexpr PortRange kSidePorts{.low = 30000, .high = 32767};
constexpr milliseconds kFirstPatience(1000);  // for an answer; doubled until the next
constexpr milliseconds kMostPatience(4000);
constexpr milliseconds kSidePatience(500);
constexpr milliseconds kPause(50);
constexpr int kClockReadings = 4;  // the quickest one counts

Deadline soon(milliseconds patience, Deadline deadline) {
  return std::min(deadline, Deadline::clock::now() + patience);
}

Reach reach_of(int error) {
  if (error == ECONNREFUSED) return Reach::kRefused;
  return error == ETIMEDOUT ? Reach::kSilent : Reach::kUnreachable;
}

std::int64_t wall_clock_us() {
  return std::chrono::duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Reads the other side's clock. False when it is not rank 0 of this step.
bool read_clock(CheckReport& report, CheckClient& client, Deadline deadline) {
  report.round_trip_us = UINT64_MAX;
  for (int reading = 0; reading < kClockReadings; ++reading) {
    const auto begin = wall_clock_us();
    if (!client.send("clock", kVersion, deadline)) return false;
    const auto answer = client.receive(deadline);
    const auto took = std::max<std::int64_t>(wall_clock_us() - begin, 0);
    const auto there = answer && answer->word == "clock" ? parse_unsigned(answer->body, INT64_MAX / 4) : std::nullopt;
    if (!there) return false;
    if (static_cast<std::uint64_t>(took) >= report.round_trip_us) continue;
    report.round_trip_us = static_cast<std::uint64_t>(took);
    report.clock_error_us = report.round_trip_us / 2;
    report.clock_skew_us = static_cast<std::uint64_t>(std::abs(static_cast<std::int64_t>(*there) - begin - took / 2));
  }
  return true;
}

std::optional<CheckClient> fail_with(CheckReport& report, Reach reach, std::string trouble) {
  report.reach = reach;
  report.reach_trouble = std::move(trouble);
  return std::nullopt;
}

std::optional<CheckClient> try_address(CheckReport& report, const SocketAddress& address, const std::string& step_tag,
                                       Deadline deadline) {
  report.target = address.text();
  auto socket = connect_to(address, deadline);
  if (!socket.is_open()) return fail_with(report, reach_of(errno), std::strerror(errno));
  report.interface = interface_of(socket);
  CheckClient client(std::move(socket), step_tag, report.rank);
  report.reach = Reach::kReached;
  report.reach_trouble.clear();
  if (read_clock(report, client, deadline)) return client;
  return fail_with(report, Reach::kForeign, "it accepts connections but does not answer as rank 0 of this step does");
}

std::optional<CheckClient> try_name(CheckReport& report, const std::string& name, std::uint16_t port,
                                    const std::string& step_tag, Deadline deadline) {
  report.target.clear();
  const auto addresses = resolve(name, port, deadline);
  if (!addresses) return fail_with(report, Reach::kNoName, addresses.error().message);
  for (const auto& address : *addresses) {
    if (auto client = try_address(report, address, step_tag, deadline)) return client;
  }
  return std::nullopt;
}

}  // namespace

std::uint16_t side_port(const StepId& id) { return computed_port(id, kSidePorts); }

bool CheckClient::send(std::string_view word, std::string_view body, Deadline deadline) {
  return send_all(socket_, write_line({step_tag_, rank_, std::string(word), std::string(body)}), deadline);
}

std::optional<CheckLine> CheckClient::receive(Deadline deadline) {
  const auto received = receive_line(socket_, received_, deadline);
  auto line = received ? read_line(*received) : std::nullopt;
  return line && line->step_tag == step_tag_ && line->rank == 0 ? line : std::nullopt;
}

Result<CheckClient> find_rank_zero(CheckReport& report, const StepId& id, const std::string& host, Deadline deadline) {
  const auto tag = step_tag(id);
  for (auto patience = kFirstPatience;; patience = std::min(2 * patience, kMostPatience)) {
    const auto try_main = [&] { return try_name(report, report.address, report.port, tag, soon(patience, deadline)); };
    if (auto client = try_main()) return std::move(*client);
    auto way = report;
    if (auto client = try_name(way, host, side_port(id), tag, soon(kSidePatience, deadline))) {
      // Rank 0 is there; it may have come between the two attempts.
      if (auto again = try_main()) return std::move(*again);
      std::swap(report, way);
      report.reach = way.reach;
      report.reach_trouble = way.reach_trouble;
      report.target = way.target;
      return std::move(*client);
    }
    // The last attempt must have the time to be refused.
    if (Deadline::clock::now() + kPause + kFirstPatience / 10 >= deadline) {
      const auto target = report.target.empty() ? std::string() : cat({" (", report.target, ")"});
      return fail(ErrorCode::kTimeout, cat({report.reach_trouble, target}));
    }
    sleep_for(kPause);
  }
}

}  // namespace bootstrap
