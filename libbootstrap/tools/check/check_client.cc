// A rank other than 0 in a check: finds its way to rank 0, as a program would, and stays in touch.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_client.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/plan/master_endpoint.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Below Linux' default ip_local_port_range, above our default port_range.
constexpr PortRange kSideDoors{.low = 30000, .high = 32767};
constexpr milliseconds kFirstPatience(1000);  // for an answer; doubled until the next
constexpr milliseconds kMostPatience(4000);
constexpr milliseconds kSidePatience(500);
constexpr milliseconds kFirstPause(20);
constexpr milliseconds kLongestPause(200);
constexpr int kClockReadings = 4;  // the quickest one counts: it was held up least

Reach reach_of(int error) {
  switch (error) {
    case ECONNREFUSED:
      return Reach::kRefused;
    case ETIMEDOUT:
      return Reach::kSilent;
    default:
      return Reach::kUnreachable;
  }
}

struct Attempt {
  std::optional<CheckVisit> visit;
  Reach reach = Reach::kUnreachable;
  std::string trouble;
  std::string target;
};

microseconds wall_clock() {
  return std::chrono::duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch());
}

// Says hello, and reads the other side's clock while it answers. False when it is not rank 0 of this step.
bool greet(CheckVisit& visit, const Hello& hello, Deadline deadline) {
  auto quickest = microseconds::max();
  for (int reading = 0; reading < kClockReadings; ++reading) {
    const auto asked = wall_clock();
    const auto begin = Deadline::clock::now();
    if (!visit.talk.say(FrameKind::kHello, write_hello(hello), deadline)) return false;
    const auto answer = visit.talk.hear(deadline);
    const auto took = std::chrono::duration_cast<microseconds>(Deadline::clock::now() - begin);
    if (!answer || answer->kind != FrameKind::kClock) return false;
    const auto there = parse_unsigned(answer->body, INT64_MAX / 4);
    if (!there) return false;
    if (took >= quickest) continue;
    quickest = took;
    visit.round_trip_us = static_cast<std::uint64_t>(took.count());
    visit.clock_error_us = visit.round_trip_us / 2;
    visit.clock_offset_us = static_cast<std::int64_t>(*there) - (asked.count() + took.count() / 2);
  }
  return true;
}

Attempt try_address(const Address& address, const Hello& hello, Deadline deadline) {
  Attempt attempt;
  attempt.target = address.text();
  auto connecting = connect_to(address, deadline);
  if (connecting.error != 0) {
    attempt.reach = reach_of(connecting.error);
    attempt.trouble = std::strerror(connecting.error);
    return attempt;
  }
  const auto own = own_address(connecting.socket);
  CheckVisit visit{CheckTalk(std::move(connecting.socket))};
  visit.target = attempt.target;
  if (own) visit.interface = interface_of(*own);
  if (greet(visit, hello, deadline)) {
    attempt.visit = std::move(visit);
  } else {
    attempt.reach = Reach::kForeign;
    const bool is_silent = Deadline::clock::now() >= deadline;
    attempt.trouble = is_silent ? "it accepts connections and says nothing: it is stuck, or not rank 0"
                                : "it accepts connections and is not rank 0 of this step";
  }
  return attempt;
}

Attempt try_way(const std::string& name, std::uint16_t port, const Hello& hello, Deadline deadline) {
  Attempt last;
  const auto addresses = resolve(name, port, deadline);
  if (!addresses || addresses->empty()) {
    last.reach = Reach::kNoName;
    last.trouble = addresses ? "it has no address" : addresses.error().message;
    return last;
  }
  for (const auto& address : *addresses) {
    last = try_address(address, hello, deadline);
    if (last.visit) return last;
  }
  return last;
}

Attempt try_side_doors(const MeetingPlace& place, const Hello& hello, Deadline deadline) {
  Attempt attempt;
  for (const auto port : place.side_doors) {
    attempt = try_way(place.home, port, hello, std::min(deadline, Deadline::clock::now() + kSidePatience));
    if (attempt.visit) break;
  }
  return attempt;
}

std::string sentence(const Attempt& attempt) {
  auto text = attempt.trouble;
  if (!attempt.target.empty()) text += cat({" (", attempt.target, ")"});
  return text;
}

}  // namespace

std::array<std::uint16_t, 3> side_doors(const StepId& id) {
  std::array<std::uint16_t, 3> ports{};
  for (std::uint32_t i = 0; i < ports.size(); ++i) {
    ports[i] = computed_port({.job = id.job, .step = id.step, .restart = id.restart + i}, kSideDoors);
  }
  return ports;
}

Result<CheckVisit> visit_rank_zero(const MeetingPlace& place, const Hello& hello, Deadline deadline) {
  auto patience = kFirstPatience;
  auto pause = kFirstPause;
  while (true) {
    const auto soon = [&] { return std::min(deadline, Deadline::clock::now() + patience); };
    auto attempt = try_way(place.address, place.port, hello, soon());
    if (attempt.visit) return std::move(*attempt.visit);
    if (auto side = try_side_doors(place, hello, deadline); side.visit) {
      // Rank 0 is there; it may have come between the two attempts.
      auto again = try_way(place.address, place.port, hello, soon());
      if (again.visit) return std::move(*again.visit);
      side.visit->reach = again.reach;
      side.visit->trouble = again.trouble;
      side.visit->target = again.target;
      return std::move(*side.visit);
    }
    // The last attempt must have the time to be refused.
    if (Deadline::clock::now() + pause + kFirstPatience / 10 >= deadline)
      return fail(ErrorCode::kTimeout, sentence(attempt));
    (void)::poll(nullptr, 0, static_cast<int>(pause.count()));
    pause = std::min(2 * pause, kLongestPause);
    patience = std::min(2 * patience, kMostPatience);
  }
}

OwnWay try_own_way(const std::string& address, std::uint16_t port, bool is_listening, Deadline deadline) {
  const auto soon = std::min(deadline, Deadline::clock::now() + kFirstPatience);
  const auto addresses = resolve(address, port, soon);
  if (!addresses || addresses->empty()) {
    return {Reach::kNoName, addresses ? "it has no address" : addresses.error().message, {}};
  }
  OwnWay last;
  for (const auto& one : *addresses) {
    last = {Reach::kReached, {}, one.text()};
    if (!interface_of(one).empty()) {
      // Nobody takes the connection: the kernel makes it, and that is what is asked.
      if (!is_listening) return last;
      const auto connecting = connect_to(one, soon);
      if (connecting.error == 0) return last;
      last.reach = reach_of(connecting.error);
      last.trouble = std::strerror(connecting.error);
    } else {
      last.reach = Reach::kForeign;
      last.trouble = "it is no address of the host of rank 0";
    }
  }
  return last;
}

void add_way(CheckReport& report, const CheckVisit& visit) {
  report.reach = visit.reach;
  report.reach_trouble = visit.trouble;
  report.target = visit.target;
  report.interface = visit.interface;
  report.round_trip_us = visit.round_trip_us;
  report.clock_offset_us = visit.clock_offset_us;
  report.clock_error_us = visit.clock_error_us;
}

}  // namespace bootstrap
