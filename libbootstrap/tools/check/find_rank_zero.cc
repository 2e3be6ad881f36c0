// The way of a rank to rank 0, and lines over a connection; each within a deadline.
// SPDX-License-Identifier: Apache-2.0
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/plan/master_endpoint.h"
#include "core/util/text.h"
#include "tools/check/check_meeting.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using Clock = Deadline::clock;
using Addresses = std::shared_ptr<const addrinfo>;

// Below Linux' default ip_local_port_range, above our default port_range.
constexpr PortRange kSidePorts{.low = 30000, .high = 32767};
constexpr milliseconds kPatience(2000);  // for an answer; a lost packet is sent again after one
constexpr milliseconds kSidePatience(500);
constexpr milliseconds kPause(50);
constexpr milliseconds kLeastAttempt(100);  // the last attempt needs the time to be refused
constexpr int kClockReadings = 4;           // the quickest one counts

// The error is the reason alone.
Result<Addresses> look_up(const std::string& name, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code == 0) return Addresses(list, ::freeaddrinfo);
  return fail(ErrorCode::kUnavailable, code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code));
}

// A non-blocking socket, or none, and the reason in errno.
Descriptor connect_to(const addrinfo& address, Deadline deadline) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open() || ::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  int error = errno;
  socklen_t size = sizeof error;
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    if (poll_until(socket.get(), POLLOUT, deadline))
      (void)::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) socket.reset();
  errno = error;
  return socket;
}

std::string text_of(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  (void)::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

// "eth0": that of this end of a connection; empty when none has its address.
std::string interface_of(const Descriptor& socket) {
  sockaddr_storage storage{};
  auto* const own = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = sizeof storage;
  ifaddrs* list = nullptr;
  if (::getsockname(socket.get(), own, &size) != 0 || ::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const auto* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != own->sa_family) continue;
    if (text_of(entry->ifa_addr, size) == text_of(own, size)) return entry->ifa_name;
  }
  return {};
}

// Reads the other side's clock. False when it is not rank 0 of this step.
bool read_clock(CheckReport& report, CheckConnection& connection, const std::string& tag, Deadline deadline) {
  const auto hello = cat({"hello ", tag, " ", std::to_string(report.rank), " ", kVersion});
  const auto start_of_answer = cat({"clock ", tag, " "});
  report.round_trip_us = UINT64_MAX;
  for (int reading = 0; reading < kClockReadings; ++reading) {
    const auto begin = wall_clock_us();
    const auto answer = connection.send(hello, deadline) ? connection.receive(deadline) : std::nullopt;
    const auto took = std::max<std::int64_t>(wall_clock_us() - begin, 0);
    if (!answer || !answer->starts_with(start_of_answer)) return false;
    const auto there = parse_unsigned(std::string_view(*answer).substr(start_of_answer.size()), INT64_MAX / 4);
    if (!there) return false;
    if (static_cast<std::uint64_t>(took) >= report.round_trip_us) continue;
    report.round_trip_us = static_cast<std::uint64_t>(took);
    report.clock_error_us = report.round_trip_us / 2;
    report.clock_skew_us = static_cast<std::uint64_t>(std::abs(static_cast<std::int64_t>(*there) - begin - took / 2));
  }
  return true;
}

// Tries to reach rank 0 by this name, and describes the way in the report.
std::optional<CheckConnection> try_name(CheckReport& report, const std::string& name, std::uint16_t port,
                                        const std::string& tag, Deadline deadline) {
  // The system's resolver has no deadline: its thread goes on alone after ours.
  const auto addresses = call_with_deadline<Addresses>(
      "the resolver", [name, port] { return look_up(name, port); }, deadline);
  report.target.clear();
  report.reach = Reach::kNoName;
  if (!addresses) report.reach_trouble = addresses.error().message;
  for (const auto* at = addresses ? addresses->get() : nullptr; at != nullptr; at = at->ai_next) {
    report.target = text_of(at->ai_addr, at->ai_addrlen);
    CheckConnection connection{connect_to(*at, deadline)};
    if (!connection.socket.is_open()) {
      report.reach = errno == ECONNREFUSED ? Reach::kRefused
                     : errno == ETIMEDOUT  ? Reach::kSilent
                                           : Reach::kUnreachable;
      report.reach_trouble = std::strerror(errno);
      continue;
    }
    report.interface = interface_of(connection.socket);
    if (read_clock(report, connection, tag, deadline)) {
      report.reach = Reach::kReached;
      report.reach_trouble.clear();
      return connection;
    }
    report.reach = Reach::kForeign;
    report.reach_trouble = "it accepts connections but does not answer as rank 0 of this step does";
  }
  return std::nullopt;
}

}  // namespace

bool CheckConnection::send(std::string_view line, Deadline deadline) const {
  return send_all(socket.get(), cat({line, "\n"}), deadline);
}

bool CheckConnection::read_some() {
  std::array<char, 4096> bytes;
  const auto count = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  received.append(bytes.data(), static_cast<std::size_t>(count));
  return count > 0 && received.size() <= kMaxLine;
}

std::optional<std::string> CheckConnection::take_line() {
  const auto end = received.find('\n');
  if (end == std::string::npos) return std::nullopt;
  auto line = received.substr(0, end);
  received.erase(0, end + 1);
  return line;
}

std::optional<std::string> CheckConnection::receive(Deadline deadline) {
  while (true) {
    if (auto line = take_line()) return line;
    if (!poll_until(socket.get(), POLLIN, deadline) || !read_some()) return std::nullopt;
  }
}

std::uint16_t side_port(const StepId& id) { return computed_port(id, kSidePorts); }

Result<CheckConnection> find_rank_zero(CheckReport& report, const StepId& id, const std::string& host,
                                       Deadline deadline) {
  const auto tag = step_tag(id);
  // The side port needs its share of the time.
  const auto patience = std::min<Clock::duration>(kPatience, (deadline - Clock::now()) / 4);
  const auto try_main = [&](CheckReport& way) {
    return try_name(way, report.address, report.port, tag, Clock::now() + patience);
  };
  for (;;) {
    if (auto connection = try_main(report)) return std::move(*connection);
    auto aside = report;
    if (auto connection = try_name(aside, host, side_port(id), tag, Clock::now() + kSidePatience)) {
      // Rank 0 runs, and may have started between the two attempts.
      if (auto again = try_main(report)) return std::move(*again);
      aside.reach = report.reach;
      aside.reach_trouble = report.reach_trouble;
      aside.target = report.target;
      report = std::move(aside);
      return std::move(*connection);
    }
    if (Clock::now() + kPause + kLeastAttempt >= deadline) {
      const auto target = report.target.empty() ? std::string() : cat({" (", report.target, ")"});
      return fail(ErrorCode::kTimeout, cat({report.reach_trouble, target}));
    }
    sleep_for(kPause);
  }
}

}  // namespace bootstrap
